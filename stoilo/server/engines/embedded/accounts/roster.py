"""The people and computers of a project, for its operator and for the people themselves.

Works beside a running project: every call is one transaction on its database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import exists, func, select, update

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.accounts.accounts import (
    Account,
    Accounts,
    load_secret,
)
from stoilo.server.engines.embedded.accounts.host_trust import (
    ban,
    lift_ban,
    trust_account,
    trusted_accounts,
    void_results,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    Person,
    ProjectPreferences,
    ensure_person,
    load_person,
    load_preferences,
    save_person,
    save_preferences,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.db.records import CheckVerdict

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Table

    from stoilo.server.engines.embedded.db.schema import AnyRow


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


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """One spot check that has ended (`workunits.spot_checks`)."""

    id: int  # grows with the checks that were made
    workunit: str  # its name
    verdict: CheckVerdict  # how it ended
    ended_at: int  # s since 1970
    banned: tuple[int, ...] = ()  # hosts that were banned for it
    # hosts that were wrong in a resumed run, and not banned
    excused: tuple[int, ...] = ()


class Roster:
    """Who takes part, and with what."""

    def __init__(self, database: Database, accounts: Accounts) -> None:
        self._database = database
        self.accounts = accounts

    def list_accounts(self) -> tuple[KnownAccount, ...]:
        """Return every account, oldest first."""
        users, people, hosts = schema.users, schema.people, schema.hosts
        count = (
            select(func.count())
            .where(hosts.c.user_id == users.c.id)
            .scalar_subquery()
            .label("hosts")
        )
        query = select(users, people, count).outerjoin(
            people, people.c.user_id == users.c.id
        )
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(users.c.id)).all()
        return tuple(_account(row) for row in rows)

    def list_hosts(self, *, email: str = "") -> tuple[KnownHost, ...]:
        """Return the hosts of one account, or every one, oldest first."""
        hosts, users, records = schema.hosts, schema.users, schema.host_records
        bans = schema.bans
        banned = exists().where(bans.c.host_id == hosts.c.id)
        query = (
            select(hosts, users.c.email, records, banned.label("banned"))
            .join(users, users.c.id == hosts.c.user_id)
            .outerjoin(records, records.c.host_id == hosts.c.id)
            .order_by(hosts.c.id)
        )
        if email:
            query = query.where(users.c.email == email.strip().lower())
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(_host(row) for row in rows)

    def find_user(self, email: str) -> int:
        """Return an account's number; raises ``STO-E069``."""
        with self._database.read() as connection:
            return _user_of(connection, email)

    def load(self, user_id: int) -> tuple[ProjectPreferences, Person]:
        """Return what a volunteer chose and is called."""
        with self._database.read() as connection:
            preferences = load_preferences(connection, user_id)
            return preferences, load_person(connection, user_id)

    def choose(
        self, user_id: int, chosen: ProjectPreferences, person: Person, now: int
    ) -> None:
        """Store what a volunteer chose; all of it, or ``STO-E060`` or ``STO-E064``."""
        with self._database.write() as connection:
            save_preferences(connection, user_id, chosen, now)
            save_person(connection, user_id, person)

    def change_keys(self, email: str, now: int) -> Account:
        """Give an account new keys and no password (`Accounts.take_over`).

        Raises:
            UsageError: ``STO-E069``.
        """
        self.find_user(email)
        return self.accounts.take_over(email, now)

    def ban_host(self, host_id: int, now: int, *, lift: bool = False) -> None:
        """Give a host no work and count none of its results, or do so again.

        What it has in progress goes to others. Raises ``STO-E069``.
        """
        hosts = schema.hosts
        with self._database.write() as connection:
            cpid = connection.scalar(select(hosts.c.cpid).where(hosts.c.id == host_id))
            if cpid is None:
                raise UsageError("STO-E069", f"there is no computer {host_id}")
            if lift:
                lift_ban(connection, host_id)
            else:
                ban(connection, host_id, cpid, now)

    def ban_account(self, email: str, now: int, *, lift: bool = False) -> None:
        """Ban an account with every host that it has or will have, or lift that."""
        people, hosts = schema.people, schema.hosts
        with self._database.write() as connection:
            user_id = _user_of(connection, email)
            ensure_person(connection, user_id)
            connection.execute(
                update(people)
                .where(people.c.user_id == user_id)
                .values(banned_at=0 if lift else now)
            )
            mine = select(hosts.c.id).where(hosts.c.user_id == user_id)
            for host_id in () if lift else connection.scalars(mine).all():
                void_results(connection, host_id, now)

    def trust(self, email: str, now: int, *, trusted: bool = True) -> None:
        """Let an account's hosts check others again, or no longer; ``STO-E040``."""
        address = email.strip().lower()
        with self._database.write() as connection:
            trust_account(connection, address, now, trusted=trusted)

    def trusted(self) -> list[str]:
        """Return the addresses of the accounts whose hosts check others again."""
        with self._database.read() as connection:
            return trusted_accounts(connection)

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
        InternalError: ``STO-E003`` or ``STO-E005``.
    """
    database = Database(database_url or f"sqlite:///{directory / 'engine.sqlite'}")
    database.upgrade()
    secret = load_secret(directory / "account.secret")
    return Roster(database, Accounts(database, secret))


def _user_of(connection: Connection, email: str) -> int:
    """Return an account's number; raises ``STO-E069``."""
    users = schema.users
    found = connection.scalar(
        select(users.c.id).where(users.c.email == email.strip().lower())
    )
    if found is None:
        raise UsageError(
            "STO-E069",
            f"there is no account of {email[:100]!r}",
            hint="make it with `stoilo boinc account`",
        )
    return int(found)


def _account(row: AnyRow) -> KnownAccount:
    return KnownAccount(
        user_id=row.id,
        email=row.email,
        name=row.name or "",
        max_level=row.max_level,
        hosts=row.hosts,
        banned=bool(row.banned_at),
        created_at=row.created_at,
        total_credit=row.total_credit or 0.0,
        verified=not row.password_hash,
    )


def _host(row: AnyRow) -> KnownHost:
    return KnownHost(
        host_id=row.id,
        email=row.email,
        domain_name=row.domain_name or "",
        platform=row.platform or "",
        client=row.client or "",
        os_name=row.os_name or "",
        model=row.model or "",
        ncpus=row.ncpus or 1,
        memory_bytes=row.memory_bytes or 0.0,
        banned=bool(row.banned),
        created_at=row.created_at,
        seen_at=row.seen_at,
        total_credit=row.total_credit or 0.0,
    )


def ended_checks(connection: Connection, since: int = 0) -> list[SpotCheck]:
    """Return the checks that ended at `since`, s, or later, oldest first."""
    table, of = schema.spot_checks, schema.workunits
    rows = connection.execute(
        select(table, of.c.name)
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.ended_at >= max(1, since))
        .order_by(table.c.ended_at, table.c.copy_id)
    ).all()
    return [
        SpotCheck(
            row.copy_id,
            row.name,
            CheckVerdict(row.verdict),
            row.ended_at,
            _hosts_named(connection, schema.bans, row.workunit_id),
            _hosts_named(connection, schema.excuses, row.workunit_id),
        )
        for row in rows
    ]


def _hosts_named(
    connection: Connection, table: Table, workunit_id: int
) -> tuple[int, ...]:
    query = select(table.c.host_id).where(table.c.workunit_id == workunit_id)
    return tuple(connection.scalars(query.order_by(table.c.host_id)))
