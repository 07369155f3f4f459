"""Rows that nobody needs any more go (BOINC's ``db_purge``), some at a time.

A workunit goes, with its results and all that hangs on them, when it has ended, the server
has taken its outcome, nothing is compared with it any more and that was long enough ago.
Workunits that were checked again, and those for which somebody was banned or excused, stay:
they are the evidence. Credit stays, in sums and in a row for each result that was paid. A
host goes when it has not called for long, has no results and no credit and is not banned.

A report of a result that is gone is one of an unknown result: acknowledged, and forgotten.

The newest workunit, result and host always stay: SQLite gives the number after the largest
that is there, and a number must never come again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, delete, exists, func, select

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.interface import OutcomeKind, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select

# Workunits, or hosts, in one transaction: callers wait as long for the write lock
PURGED_TOGETHER: Final = 200
DAY_S: Final = 86_400
_OF_RESULTS: Final = (schema.usages, schema.resumptions)
_OF_WORKUNITS: Final = (schema.offers, schema.bounds, schema.replications)
_OF_HOSTS: Final = (
    schema.wishes,
    schema.host_records,
    schema.quotas,
    schema.leases,
    schema.histories,
)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows are kept."""

    workunit_days: int = 30  # after a workunit is over; 0: for ever
    # after a host without credit has called for the last time; 0: for ever
    host_days: int = 180


def purge(
    # of the engine's database; inside a write transaction, or reading and then
    # `NeedsWritingError` says that there is something to remove
    connection: Connection,
    retention: Retention,  # how long to keep what
    now: int,  # s
) -> int:
    """Remove some of the rows that are too old; return how many workunits and hosts."""
    gone = 0
    if retention.workunit_days:
        gone += _purge_workunits(connection, now - retention.workunit_days * DAY_S)
    if retention.host_days:
        gone += _purge_hosts(connection, now - retention.host_days * DAY_S)
    return gone


def _purge_workunits(connection: Connection, before: int) -> int:
    rows: list[int] = []
    for kind in OutcomeKind:  # each a range of the index of outcome and time
        asked = {"kind": kind.value, "before": before}
        most = PURGED_TOGETHER - len(rows)
        rows += connection.scalars(_old_workunits(), {**asked, "most": most})
    if rows:
        must_write(connection)
        _remove_workunits(connection, rows)
    return len(rows)


def _remove_workunits(connection: Connection, rows: Sequence[int]) -> None:
    results = schema.results
    theirs = select(results.c.id).where(results.c.workunit_id.in_(rows))
    numbers = connection.scalars(theirs).all()
    for table in _OF_RESULTS:
        connection.execute(delete(table).where(table.c.copy_id.in_(numbers)))
    for table in (*_OF_WORKUNITS, results):
        connection.execute(delete(table).where(table.c.workunit_id.in_(rows)))
    workunits = schema.workunits
    connection.execute(delete(workunits).where(workunits.c.id.in_(rows)))


@cache
def _old_workunits() -> Select[Any]:
    """Return the query for workunits that ended as :kind and were over :before."""
    table, results = schema.workunits, schema.results
    open_result = exists().where(
        results.c.workunit_id == table.c.id,
        results.c.state != ResultProgress.OVER.value,
    )
    newest_result = exists().where(
        results.c.workunit_id == table.c.id,
        results.c.id == select(func.max(results.c.id)).scalar_subquery(),
    )
    named = [
        exists().where(other.c.workunit_id == table.c.id)
        for other in (
            schema.outbox,
            schema.lingering,
            schema.workunit_files,
            schema.spot_checks,
            schema.bans,
            schema.excuses,
        )
    ]
    newest = select(func.max(table.c.id)).scalar_subquery()
    return (
        select(table.c.id)
        .where(
            table.c.outcome == bindparam("kind"),
            table.c.transition_at <= bindparam("before"),
            table.c.id != newest,
            *(~one for one in (open_result, newest_result, *named)),
        )
        .order_by(table.c.transition_at)
        .limit(bindparam("most"))
    )


def _purge_hosts(connection: Connection, before: int) -> int:
    asked = {"before": before, "most": PURGED_TOGETHER}
    rows = connection.scalars(_old_hosts(), asked).all()
    if rows:
        must_write(connection)
        for table in _OF_HOSTS:
            connection.execute(delete(table).where(table.c.host_id.in_(rows)))
        hosts = schema.hosts
        connection.execute(delete(hosts).where(hosts.c.id.in_(rows)))
    return len(rows)


@cache
def _old_hosts() -> Select[Any]:
    table, records = schema.hosts, schema.host_records
    named = [
        exists().where(other.c.host_id == table.c.id)
        for other in (schema.results, schema.bans, schema.excuses)
    ]
    paid = exists().where(records.c.host_id == table.c.id, records.c.total_credit > 0)
    newest = select(func.max(table.c.id)).scalar_subquery()
    return (
        select(table.c.id)
        .where(
            table.c.seen_at <= bindparam("before"),
            table.c.id != newest,
            *(~one for one in (*named, paid)),
        )
        .order_by(table.c.id)
        .limit(bindparam("most"))
    )
