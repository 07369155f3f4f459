"""`stoilo boinc migrate`: a project at home becomes a stock project; repeatable.

The server must be stopped. Steps, each one transaction and each harmless when done again:
accounts and hosts into BOINC's tables; running tasks get new attempts. What is there
already is left alone, so a move that was cut off is begun anew.

Numbers are kept: a client names its host by number and the project by URL and key, so one
that was attached goes on by itself where URL, key, number and code-signing key stay. What
BOINC has no place for is said in docs/howto/move-to-a-stock-server.md.

A workunit cannot be carried over: its results' names, upload places and deadlines are the
old engine's. The task can: an attempt is closed and the next one opened, in one
transaction, exactly as when a deadline has passed. What hosts still compute for the old
attempt counts for nothing.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from sqlalchemy import MetaData, Table, insert, select

from stoilo.core.errors import UsageError
from stoilo.core.types import TaskState
from stoilo.server.data_directory import claim_directory
from stoilo.server.db import rows
from stoilo.server.db.records import AttemptState, workunit_name
from stoilo.server.db.store import Store
from stoilo.server.engines.embedded.accounts.accounts import (
    ERASED,
    Accounts,
    load_secret,
)
from stoilo.server.engines.embedded.accounts.preferences import LEVELS
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.stock.project.database import open_database
from stoilo.server.engines.stock.project.levels import CHOICE, chosen_work

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.config import ServerConfig
    from stoilo.server.db.records import AttemptRow, TaskRow

    AtHome = Callable[[AbstractSet[str]], AbstractSet[str]]


# ``host.max_results_day``: the scheduler sends such a host nothing.
BLACKLISTED: Final = -1
_BATCH: Final = 256  # attempts looked at together
Columns = dict[str, object]


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved."""

    users: int  # accounts that were not there
    users_there: int  # accounts that were
    hosts: int  # computers that were not there
    hosts_there: int  # computers that were
    tasks: int  # running tasks that get a new attempt
    apps: tuple[str, ...]  # levels that the stock project has an app for


def move_project(
    config: ServerConfig,  # of the embedded project, whose server is stopped
    boinc_url: str,  # SQLAlchemy URL of the stock project's database
    *,
    # take the weak keys, by which most hosts are attached, as BOINC's one key
    weak: bool = False,
) -> Moved:
    """Move people, hosts, credit and running tasks.

    Raises:
        InternalError: ``STO-R070`` the server runs; ``STO-B025`` BOINC's database refuses.
        UsageError: ``STO-B008`` the stock project has no apps; ``STO-B073`` numbers taken.
    """
    home = claim_directory(config.data)
    with (
        closing(home.lock),
        closing(Database(config.engine_database_url)) as source,
        closing(Store.open(config.database_url)) as store,
    ):
        source.upgrade()
        secret = load_secret(config.data / "engine" / "account.secret")
        accounts = Accounts(source, secret)
        with (
            open_database(boinc_url, "BOINC's database refuses") as boinc,
            source.read() as ours,
        ):
            apps = _apps(boinc)
            users = read_users(ours, accounts, apps, weak=weak)
            hosts = read_hosts(ours)
            new_users = _put(boinc, "user", users, "email_addr")
            new_hosts = _put(boinc, "host", hosts, "host_cpid")
        return Moved(
            users=new_users,
            users_there=len(users) - new_users,
            hosts=new_hosts,
            hosts_there=len(hosts) - new_hosts,
            tasks=move_tasks(
                store, lambda names: known_workunits(source, names), int(time.time())
            ),
            apps=tuple(sorted(apps, key=LEVELS.index)),
        )


# -- people -------------------------------------------------------------------------


def read_users(
    connection: Connection, accounts: Accounts, apps: Mapping[str, int], *, weak: bool
) -> list[Columns]:
    """Return accounts as rows of BOINC's ``user``; `apps` are numbers by level.

    Those that were erased are left out.
    """
    users = schema.users
    found = []
    known = select(users).where(~users.c.email.startswith(ERASED))
    for row in connection.execute(known.order_by(users.c.id)):
        account = accounts.open_by_id(row.id)
        key = account.weak_key if weak else account.key
        allowed = LEVELS[: LEVELS.index(row.max_level) + 1]
        numbers = [apps[level] for level in allowed if level in apps]
        found.append(user_values(row, key, numbers))
    return found


def user_values(row: Any, key: str, app_ids: Sequence[int]) -> Columns:  # noqa: ANN401 - a row of SQLAlchemy
    """Return the columns of a row of BOINC's ``user``; `key` stands there in clear."""
    # An empty choice of apps means all of them to BOINC, so it is always written.
    apps = "".join(f"<app_id>{number}</app_id>\n" for number in app_ids)
    preferences = (
        "<project_preferences>\n"
        f"<project_specific>\n<max_level>{escape(row.max_level)}</max_level>\n"
        # the one element that plan classes look at: without it an account has `pure` only
        f"<{CHOICE}>{escape(chosen_work(row.max_level))}</{CHOICE}>\n"
        f"</project_specific>\n{apps}</project_preferences>\n"
    )
    return {
        "id": row.id,
        "create_time": row.created_at,
        "email_addr": row.email,
        "name": row.name or row.email.partition("@")[0],
        "authenticator": key,
        "total_credit": row.total_credit,
        "project_prefs": preferences.encode(),
        # BOINC stores passwords in another form: a random one that nobody knows.
        "passwd_hash": secrets.token_hex(16),
        "cross_project_id": secrets.token_hex(16),
        "show_hosts": 0,
        "send_email": 0,
    }


def read_hosts(connection: Connection) -> list[Columns]:
    """Return every computer as a row of BOINC's ``host``."""
    users, hosts = schema.users, schema.hosts
    query = (
        select(hosts)
        .join(users, users.c.id == hosts.c.user_id)
        .where(~users.c.email.startswith(ERASED))
        .order_by(hosts.c.id)
    )
    return [host_values(row) for row in connection.execute(query)]


def host_values(row: Any) -> Columns:  # noqa: ANN401 - a row of SQLAlchemy
    """Return the columns of a row of BOINC's ``host``."""
    return {
        "id": row.id,
        "create_time": row.created_at,
        "userid": row.user_id,
        "rpc_seqno": row.rpc_seqno,
        "rpc_time": row.seen_at,
        "total_credit": row.total_credit,
        "domain_name": row.domain_name,
        # Neutral until the host reports: 0 would make BOINC expect no work of it.
        "on_frac": 1.0,
        "connected_frac": 1.0,
        "active_frac": 1.0,
        "cpu_efficiency": 1.0,
        "duration_correction_factor": 1.0,
        "p_ncpus": row.ncpus,
        "p_vendor": row.vendor,
        "p_model": row.model,
        "p_fpops": row.fpops,
        "os_name": row.os_name,
        "os_version": row.os_version,
        "m_nbytes": row.memory_bytes,
        "d_free": row.disk_free_bytes,
        "host_cpid": row.cpid,
        "max_results_day": 0 if row.ban is None else BLACKLISTED,
    }


def missing_rows(
    wanted: Sequence[Columns],  # rows to be there
    present: Mapping[int, str],  # number of each row there → what it is known by
    # what rows there are known by, where that must be unique; else empty
    taken: Collection[str],
    known_by: str,  # the column that tells one from another
) -> list[Columns]:
    """Return those rows that are not there yet; what is there is left as it is.

    Raises:
        UsageError: ``STO-B073`` a number or an address is somebody else's.
    """
    missing = []
    for row in wanted:
        number, mark = int(str(row["id"])), str(row[known_by])
        there = present.get(number)
        if there is None and mark in taken:
            raise UsageError("STO-B073", f"{known_by} of row {number} is taken there")
        if there is not None and there != mark:
            raise UsageError(
                "STO-B073",
                f"number {number} belongs to somebody else in the stock project",
                hint="move into a project that has no volunteers of its own yet",
            )
        if there is None:
            missing.append(row)
    return missing


def _apps(boinc: Connection) -> dict[str, int]:
    """Return level → number of its app; raises ``STO-B008`` where there is none."""
    app = Table("app", MetaData(), autoload_with=boinc)
    found = {
        row.name: row.id
        for row in boinc.execute(select(app.c.id, app.c.name))
        if row.name in LEVELS
    }
    if not found:
        raise UsageError(
            "STO-B008",
            "the stock project has no app of ours",
            hint="stoilo boinc install PROJECT_DIR",
        )
    return found


def _put(
    boinc: Connection,
    name: str,
    wanted: Sequence[Columns],
    known_by: str,
) -> int:
    """Insert the rows that are missing, as far as the table has their columns."""
    table = Table(name, MetaData(), autoload_with=boinc)
    mark = table.c[known_by]
    present = {row[0]: str(row[1]) for row in boinc.execute(select(table.c.id, mark))}
    taken = set(present.values()) if name == "user" else set()
    missing = missing_rows(wanted, present, taken, known_by)
    if missing:
        blank, known = _blanks(table), set(table.c.keys())
        values = [
            blank | {key: value for key, value in row.items() if key in known}
            for row in missing
        ]
        boinc.execute(insert(table), values)
    return len(missing)


def _blanks(table: Table) -> Columns:
    """Return what stands in columns that must hold something and say nothing.

    BOINC's tables have columns without a default (``db/schema.sql``): 0 or empty text.
    """
    blanks: Columns = {}
    for column in table.c:
        if column.nullable or column.server_default is not None or column.primary_key:
            continue
        kind = column.type.python_type
        blanks[column.name] = kind() if kind in {int, float, str, bytes} else 0
    return blanks


# -- tasks --------------------------------------------------------------------------


def move_tasks(store: Store, at_home: AtHome, now: int) -> int:
    """Close the attempts that have a workunit at home, open the next ones; count them.

    `at_home` says which workunits the project has that is left: others are the stock
    project's, where a server has begun to work since an earlier move.
    """
    total = 0
    with store.write() as connection:
        for page in _running(connection, at_home):
            for name in page:
                if (found := rows.find_issued(connection, *name)) is not None:
                    _reopen(connection, *found, now)
            total += len(page)
    return total


def _running(
    connection: Connection, at_home: AtHome
) -> Iterator[list[tuple[str, int]]]:
    """Yield the attempts whose workunit is at home, a page at a time."""
    last = ("", 0)
    while page := rows.issued_after(connection, last, _BATCH):
        last = page[-1]
        known = at_home({workunit_name(*one) for one in page})
        yield [one for one in page if workunit_name(*one) in known]


def known_workunits(source: Database, names: AbstractSet[str]) -> frozenset[str]:
    """Return those of `names` that the project at home has made."""
    name = schema.workunits.c.name
    query = select(name).where(name.in_(sorted(names)))
    with source.read() as connection:
        return frozenset(connection.scalars(query))


def _reopen(
    connection: Connection, attempt: AttemptRow, task: TaskRow, now: int
) -> None:
    rows.save_attempts(connection, [attempt], AttemptState.CLOSED)
    if task.state.final or task.attempt != attempt.number:
        return
    if task.state is TaskState.RUNNING:
        rows.move_task(connection, task, TaskState.ADMITTING, now)
    rows.add_attempt(connection, task, now)
