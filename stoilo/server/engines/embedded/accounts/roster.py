"""The people and computers of a project, for its operator and for the people themselves.

Works beside a running project: every call is one transaction on its database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
from sqlalchemy import func, select, update

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.accounts.accounts import (
    ERASED,
    Accounts,
    load_secret,
)
from stoilo.server.engines.embedded.accounts.host_trust import (
    ban,
    find_user,
    lift_ban,
    trust_account,
    void_results,
)
from stoilo.server.engines.embedded.accounts.leaving import (
    HostRun,
    erase,
    runs_of,
    set_left,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    ProjectPreferences,
    load_preferences,
    save_preferences,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.db.records import CheckVerdict

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Column, Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class KnownAccount:
    """One account as the operator sees it; credit in cobblestones, times in s."""

    user_id: int
    email: str
    name: str
    max_level: str
    hosts: int
    banned: bool
    created_at: int
    total_credit: float
    verified: bool
    left_at: int = 0  # 0: it takes part


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One host as it described itself; credit in cobblestones, times in s."""

    host_id: int
    email: str
    domain_name: str
    platform: str
    client: str
    os_name: str
    model: str
    ncpus: int
    memory_bytes: float
    banned: bool
    created_at: int
    seen_at: int
    total_credit: float
    max_level: str = ""  # what it asked not to be sent more than, empty: nothing
    require_review: bool = False
    require_public_source: bool = False


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """One spot check that has ended (`workunits.steps`)."""

    id: int  # grows with the checks that were made
    workunit: str  # its name
    verdict: CheckVerdict  # how it ended
    ended_at: int  # s since 1970
    banned: tuple[int, ...] = ()  # hosts that were banned for it
    # hosts that were wrong in a resumed run, and not banned
    excused: tuple[int, ...] = ()


def _record(row: AnyRow, kind: type[_Record]) -> _Record:
    """Return a row as a dataclass: columns by its fields' names, 0 and 1 as booleans."""
    return msgspec.convert(row, kind, from_attributes=True, strict=False)


class Roster:
    """Who takes part, and with what."""

    def __init__(self, database: Database, accounts: Accounts) -> None:
        self._database = database
        self.accounts = accounts

    def list_accounts(self, *, user_id: int = 0) -> tuple[KnownAccount, ...]:
        """Return every account that was not erased, or a certain one, oldest first."""
        users, hosts = schema.users, schema.hosts
        count = select(func.count()).where(hosts.c.user_id == users.c.id)
        query = select(
            users,
            users.c.id.label("user_id"),
            (users.c.banned_at > 0).label("banned"),
            (users.c.password_hash == "").label("verified"),
            count.scalar_subquery().label("hosts"),
        ).where(~users.c.email.startswith(ERASED))
        if user_id:
            query = query.where(users.c.id == user_id)
        query = query.order_by(users.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(_record(row, KnownAccount) for row in rows)

    def list_hosts(self, *, email: str = "") -> tuple[KnownHost, ...]:
        """Return the hosts of one account, or every one, oldest first."""
        hosts, users = schema.hosts, schema.users
        query = (
            select(
                hosts,
                hosts.c.id.label("host_id"),
                users.c.email,
                hosts.c.ban.is_not(None).label("banned"),
            )
            .join(users, users.c.id == hosts.c.user_id)
            .order_by(hosts.c.id)
        )
        if email:
            query = query.where(users.c.email == email.strip().lower())
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(_record(row, KnownHost) for row in rows)

    def list_runs(self, user_id: int, most: int, skip: int) -> tuple[HostRun, ...]:
        """Return copies that an account's computers had, the newest first."""
        with self._database.read() as connection:
            rows = connection.execute(runs_of(user_id, most, skip)).all()
        return tuple(_record(row, HostRun) for row in rows)

    def leave(self, user_id: int, now: int, *, back: bool = False) -> None:
        """Let an account's computers get no more work, or work again."""
        with self._database.write() as connection:
            set_left(connection, user_id, 0 if back else now)

    def erase(self, user_id: int, now: int) -> None:
        """Take a person out of an account; its keys open nothing from now on."""
        grave = self.accounts.grave_of(self.accounts.open_by_id(user_id).email)
        with self._database.write() as connection:
            erase(connection, user_id, grave, now)

    def load(self, user_id: int) -> ProjectPreferences:
        """Return what a volunteer chose and is called."""
        with self._database.read() as connection:
            return load_preferences(connection, user_id)

    def choose(self, user_id: int, chosen: ProjectPreferences) -> None:
        """Store what a volunteer chose; all of it, or ``STO-E015``."""
        with self._database.write() as connection:
            save_preferences(connection, user_id, chosen)

    def ban_host(self, host_id: int, now: int, *, lift: bool = False) -> None:
        """Give a host no work and count none of its results, or do so again.

        What it has in progress goes to others. Raises ``STO-R029``.
        """
        hosts = schema.hosts
        known = select(hosts.c.id).where(hosts.c.id == host_id)
        with self._database.write() as connection:
            if connection.scalar(known) is None:
                raise UsageError("STO-R029", f"there is no computer {host_id}")
            if lift:
                lift_ban(connection, host_id)
            else:
                ban(connection, host_id, now)

    def ban_account(self, email: str, now: int, *, lift: bool = False) -> None:
        """Ban an account with every host that it has or will have, or lift that."""
        users, hosts = schema.users, schema.hosts
        with self._database.write() as connection:
            user_id = find_user(connection, email)
            connection.execute(
                update(users)
                .where(users.c.id == user_id)
                .values(banned_at=0 if lift else now)
            )
            mine = select(hosts.c.id).where(hosts.c.user_id == user_id)
            for host_id in () if lift else connection.scalars(mine).all():
                void_results(connection, host_id, now)

    def trust(self, email: str, *, trusted: bool = True) -> None:
        """Let an account's hosts check others again, or no longer; ``STO-R029``."""
        with self._database.write() as connection:
            trust_account(connection, email.strip().lower(), trusted=trusted)

    def trusted(self) -> list[str]:
        """Return the addresses of the accounts whose hosts check others again."""
        users = schema.users
        query = select(users.c.email).where(users.c.trusted == 1)
        with self._database.read() as connection:
            return list(connection.scalars(query.order_by(users.c.email)))

    def spot_checks(self, since: int = 0) -> list[SpotCheck]:
        """Return the spot checks that ended at `since`, s, or later, oldest first."""
        with self._database.read() as connection:
            return ended_checks(connection, since)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_roster(
    directory: Path,  # the engine's own; the secret of the accounts lies there
    database_url: str = "",  # where the tables are, empty for SQLite in `directory`
) -> Roster:
    """Return the roster of the engine under `directory`, also beside a running one.

    Raises:
        InternalError: ``STO-R030`` or ``STO-E005``.
    """
    database = Database(database_url or f"sqlite:///{directory / 'engine.sqlite'}")
    database.upgrade()
    secret = load_secret(directory / "account.secret")
    return Roster(database, Accounts(database, secret))


def ended_checks(connection: Connection, since: int = 0) -> list[SpotCheck]:
    """Return the checks that ended at `since`, s, or later, oldest first."""
    table, of, hosts = schema.results, schema.workunits, schema.hosts
    rows = connection.execute(
        select(table, of.c.name.label("workunit"))
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.recheck != "", table.c.check_ended_at >= max(1, since))
        .order_by(table.c.check_ended_at, table.c.id)
    ).all()

    def named(
        column: Column[int], where: Column[int], workunit: int
    ) -> tuple[int, ...]:
        query = select(column).where(where == workunit).order_by(column)
        return tuple(connection.scalars(query))

    excused = schema.excuses.c
    return [
        SpotCheck(
            row.id,
            row.workunit,
            CheckVerdict(row.recheck),
            row.check_ended_at,
            named(hosts.c.id, hosts.c.ban, row.workunit_id),
            named(excused.host_id, excused.workunit_id, row.workunit_id),
        )
        for row in rows
    ]
