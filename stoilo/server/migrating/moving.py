"""`stoilo boinc migrate`: a project at home becomes a stock project; repeatable.

The server must be stopped. Steps, each one transaction and each harmless when done again:
accounts and hosts into BOINC's tables; running tasks get new attempts. What is there
already is left alone, so a move that was cut off is begun anew.

A workunit cannot be carried over: its results' names, upload places and deadlines are the
old engine's. The task can: an attempt is closed and the next one opened, in one
transaction, exactly as when a deadline has passed. What hosts still compute for the old
attempt counts for nothing.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, Table, create_engine, insert, select
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.types import TaskState
from stoilo.server.backup.tables import read_revision
from stoilo.server.data_directory import claim_directory
from stoilo.server.db import rows
from stoilo.server.db.states import AttemptState
from stoilo.server.db.store import SERVER, Store, open_engine
from stoilo.server.engines.embedded.accounts.accounts import (
    SECRET_BYTES,
    Accounts,
    load_secret,
)
from stoilo.server.engines.embedded.accounts.host_filter import LEVELS
from stoilo.server.engines.embedded.db.database import ENGINE, Database
from stoilo.server.migrating.people import (
    host_values,
    known_workunits,
    missing_rows,
    read_hosts,
    read_users,
    user_values,
)
from stoilo.server.migrations import newest_revision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.config import ServerConfig


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.config import ServerConfig
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.rows import AttemptName

    # which of these workunits the project has that is left
    AtHome = Callable[[AbstractSet[str]], AbstractSet[str]]

__all__ = ["Moved", "count_running", "move_project", "reopen_running"]


BATCH = 256  # attempts looked at together


def count_running(connection: Connection, at_home: AtHome) -> int:
    """Return how many attempts `reopen_running` would begin anew."""
    return sum(len(page) for page in _running(connection, at_home))


def reopen_running(connection: Connection, now: int, at_home: AtHome) -> int:
    """Close the attempts that have a workunit, open the next ones; returns how many.

    `at_home` says which workunits the project has that is left: others are the stock
    project's, where a server has begun to work since an earlier move.
    """
    total = 0
    for page in _running(connection, at_home):
        for name in page:
            found = rows.find_issued(connection, name)
            if found is not None:
                _reopen(connection, *found, now)
        total += len(page)
    return total


def _running(connection: Connection, at_home: AtHome) -> Iterator[list[AttemptName]]:
    """Yield the attempts whose workunit is at home, a page at a time."""
    last = ("", 0)
    while page := rows.issued_after(connection, last, BATCH):
        last = (page[-1].task_id, page[-1].number)
        known = at_home({one.workunit for one in page})
        yield [one for one in page if one.workunit in known]


def _reopen(
    connection: Connection, attempt: AttemptRow, task: TaskRow, now: int
) -> None:
    rows.move_attempts(connection, [attempt], AttemptState.CLOSED)
    if task.state.final or task.attempt != attempt.number:
        return
    if task.state is TaskState.RUNNING:
        rows.move_task(connection, task, TaskState.ADMITTING, now)
    rows.add_attempt(connection, task, now)


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved, or would be.

    Attributes:
        users: accounts that were not there.
        users_there: accounts that were.
        hosts: computers that were not there.
        hosts_there: computers that were.
        tasks: running tasks that get a new attempt.
        apps: levels that the stock project has an app for.
    """

    users: int
    users_there: int
    hosts: int
    hosts_there: int
    tasks: int
    apps: tuple[str, ...]


def move_project(
    config: ServerConfig, boinc_url: str, *, weak: bool = False, dry_run: bool = False
) -> Moved:
    """Move people, hosts, credit and running tasks.

    Args:
        config: of the embedded project, whose server is stopped.
        boinc_url: SQLAlchemy URL of the stock project's database.
        weak: let BOINC's key be our weak one (`read_users`).
        dry_run: count only; nothing is written into any database.

    Raises:
        InternalError: ``STO-R070`` the server runs; ``STO-B074`` BOINC's database refuses.
        UsageError: ``STO-B072`` the stock project has no apps; ``STO-B073`` numbers taken;
            ``STO-B110`` a dry run on tables of another version.
    """
    home = claim_directory(config.data)
    with closing(home.lock):
        if dry_run:
            _check_current(config)
        source = Database(config.engine_database_url)
        store = Store.open(config.database_url)
        try:
            source.upgrade()
            secret = _secret(config, dry_run=dry_run)
            people = _move_people(
                source, Accounts(source, secret), boinc_url, weak=weak, dry_run=dry_run
            )
            return _move_tasks(store, source, people, dry_run=dry_run)
        except SQLAlchemyError as error:
            raise InternalError(
                "STO-B074", f"BOINC's database refuses ({type(error).__name__})"
            ) from error
        finally:
            store.close()
            source.close()


def _check_current(config: ServerConfig) -> None:
    """Raise ``STO-B110`` unless both databases are of this version: opening upgrades."""
    urls = ((config.database_url, SERVER), (config.engine_database_url, ENGINE))
    for url, branch in urls:
        engine = open_engine(url)
        try:
            with engine.connect() as connection:
                found = read_revision(connection, branch)
        finally:
            engine.dispose()
        if found != newest_revision(branch):
            raise UsageError(
                "STO-B110",
                f"the {branch.name}'s tables are of another version than this program",
                hint="back up, start and stop the server once with this version",
            )


def _secret(config: ServerConfig, *, dry_run: bool) -> bytes:
    """Return the accounts' secret; a dry run makes none, and shows no key either."""
    path = config.data / "engine" / "account.secret"
    if dry_run and not path.exists():
        return bytes(SECRET_BYTES)
    return load_secret(path)


def _move_people(
    source: Database, accounts: Accounts, boinc_url: str, *, weak: bool, dry_run: bool
) -> Moved:
    engine = create_engine(boinc_url)
    try:
        with engine.begin() as boinc, source.read() as ours:
            apps = _apps(boinc)
            users = [
                user_values(one)
                for one in read_users(ours, accounts.open_by_id, apps, weak=weak)
            ]
            hosts = [host_values(one) for one in read_hosts(ours)]
            new_users = _put(boinc, "user", users, "email_addr", write=not dry_run)
            new_hosts = _put(boinc, "host", hosts, "host_cpid", write=not dry_run)
    finally:
        engine.dispose()
    return Moved(
        users=new_users,
        users_there=len(users) - new_users,
        hosts=new_hosts,
        hosts_there=len(hosts) - new_hosts,
        tasks=0,
        apps=tuple(sorted(apps, key=LEVELS.index)),
    )


def _move_tasks(
    store: Store, source: Database, people: Moved, *, dry_run: bool
) -> Moved:
    def at_home(names: AbstractSet[str]) -> AbstractSet[str]:
        with source.read() as connection:
            return known_workunits(connection, names)

    if dry_run:
        with store.read() as connection:
            tasks = count_running(connection, at_home)
    else:
        with store.write() as connection:
            tasks = reopen_running(connection, int(time.time()), at_home)
    return Moved(
        people.users,
        people.users_there,
        people.hosts,
        people.hosts_there,
        tasks,
        people.apps,
    )


def _apps(boinc: Connection) -> dict[str, int]:
    """Return level → number of its app; raises ``STO-B072`` where there is none."""
    app = Table("app", MetaData(), autoload_with=boinc)
    found = {
        row.name: row.id
        for row in boinc.execute(select(app.c.id, app.c.name))
        if row.name in LEVELS
    }
    if not found:
        raise UsageError(
            "STO-B072",
            "the stock project has no app of ours",
            hint="stoilo boinc install PROJECT_DIR",
        )
    return found


def _put(
    boinc: Connection,
    name: str,
    wanted: Sequence[Mapping[str, object]],
    known_by: str,
    *,
    write: bool,
) -> int:
    """Insert the rows that are missing, as far as the table has their columns.

    BOINC's tables have columns without a default: those that nobody named get 0 or
    nothing, by their kind.
    """
    table = Table(name, MetaData(), autoload_with=boinc)
    mark = table.c[known_by]
    present = {row[0]: str(row[1]) for row in boinc.execute(select(table.c.id, mark))}
    taken = set(present.values()) if name == "user" else set()
    missing = missing_rows(wanted, present, taken, known_by)
    if missing and write:
        blank = _blanks(table)
        known = set(table.c.keys())
        rows = [
            blank | {key: value for key, value in row.items() if key in known}
            for row in missing
        ]
        boinc.execute(insert(table), rows)
    return len(missing)


def _blanks(table: Table) -> dict[str, Any]:
    """Return what stands in columns that must hold something and say nothing."""
    blanks: dict[str, Any] = {}
    for column in table.c:
        if column.nullable or column.server_default is not None or column.primary_key:
            continue
        kind = column.type.python_type
        blanks[column.name] = kind() if kind in {int, float, str, bytes} else 0
    return blanks
