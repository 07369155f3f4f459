"""Rows that nobody needs any more go (BOINC's ``db_purge``), some at a time.

A workunit goes, with its results and all that hangs on them, when it has ended, the server
has taken its outcome, nothing is compared with it any more and that was long enough ago.
Workunits that were checked again, and those for which somebody was banned or excused, stay:
they are the evidence. Credit stays, in sums. A host goes when it has not called for long,
has no results and no credit and is not banned.

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
from stoilo.server.engines.embedded.db.records import WorkunitState
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

# Workunits, or hosts, in one transaction: callers wait as long for the write lock
PURGED_TOGETHER: Final = 200
DAY_S: Final = 86_400


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
    asked = {"before": before, "most": PURGED_TOGETHER}
    rows = connection.scalars(_old_workunits(), asked).all()
    if rows:
        must_write(connection)
        for column in (schema.results.c.workunit_id, schema.workunits.c.id):
            connection.execute(delete(column.table).where(column.in_(rows)))
    return len(rows)


@cache
def _old_workunits() -> Select[Any]:
    """Return the query for workunits that were over :before."""
    table, results, files = schema.workunits, schema.results, schema.workunit_files
    its = results.c.workunit_id == table.c.id
    largest = select(func.max(results.c.id)).scalar_subquery()
    stay = (
        exists().where(its, results.c.state != ResultProgress.OVER.value),
        exists().where(its, results.c.id == largest),
        exists().where(its, results.c.recheck != ""),
        exists().where(files.c.workunit_id == table.c.id),
        exists().where(schema.hosts.c.ban == table.c.id),
        exists().where(schema.excuses.c.workunit_id == table.c.id),
    )
    return (
        select(table.c.id)
        .where(
            table.c.state == WorkunitState.OVER.value,
            table.c.transition_at <= bindparam("before"),
            table.c.tell_at.is_(None),
            table.c.id != select(func.max(table.c.id)).scalar_subquery(),
            *(~one for one in stay),
        )
        .order_by(table.c.transition_at)
        .limit(bindparam("most"))
    )


def _purge_hosts(connection: Connection, before: int) -> int:
    asked = {"before": before, "most": PURGED_TOGETHER}
    rows = connection.scalars(_old_hosts(), asked).all()
    if rows:
        must_write(connection)
        apps, leases, hosts = schema.host_apps, schema.leases, schema.hosts
        for column in (apps.c.host_id, leases.c.host_id, hosts.c.id):
            connection.execute(delete(column.table).where(column.in_(rows)))
    return len(rows)


@cache
def _old_hosts() -> Select[Any]:
    table = schema.hosts
    named = [
        exists().where(other.c.host_id == table.c.id)
        for other in (schema.results, schema.excuses)
    ]
    return (
        select(table.c.id)
        .where(
            table.c.seen_at <= bindparam("before"),
            table.c.id != select(func.max(table.c.id)).scalar_subquery(),
            table.c.total_credit <= 0,
            table.c.ban.is_(None),
            *(~one for one in named),
        )
        .order_by(table.c.id)
        .limit(bindparam("most"))
    )
