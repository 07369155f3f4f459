"""Hosts whose tasks all fail: they are told to wait, twice as long after each failure.

A host that cannot run anything (no jail, a full disk, a broken download) would else take
copy after copy and end workunits for everybody. One success ends the wait. What counts is
what the host itself reports; lying can only make it wait longer or fail as it did before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from stoilo.executor.messages import ResultState
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from stoilo.executor.messages import ReportedResult

__all__ = ["delay_after", "has_failed", "note_reports", "wait_left"]

PATIENCE = 3
"""Failures in a row before a host has to wait."""

SHORTEST_S = 60
LONGEST_S = 4 * 3600
NOBODYS_FAULT = frozenset({200, 202, 203})
"""BOINC's exit statuses of tasks ended unstarted after their deadline, by the project and
by the user."""


def has_failed(report: ReportedResult) -> bool:
    """Say whether a report is of a task that the host could not do."""
    if report.exit_status in NOBODYS_FAULT:
        return False
    return report.state != ResultState.UPLOADED or report.exit_status != 0


def delay_after(failures: int) -> int:
    """Return how long a host waits after that many failures in a row, s."""
    if failures < PATIENCE:
        return 0
    return int(min(LONGEST_S, SHORTEST_S * 2.0 ** min(failures - PATIENCE, 16)))


def note_reports(
    connection: Connection, host_id: int, reports: Iterable[ReportedResult], now: int
) -> None:
    """Count failures in a row; tasks that nobody could finish count as nothing."""
    counted = [one for one in reports if one.exit_status not in NOBODYS_FAULT]
    if not counted:
        return
    table = schema.host_backoffs
    mine = table.c.host_id == host_id
    before = connection.scalar(select(table.c.failures).where(mine))
    failures = before or 0
    for report in counted:
        failures = failures + 1 if has_failed(report) else 0
    values = {"failures": failures, "until": now + delay_after(failures)}
    if not failures:
        connection.execute(delete(table).where(mine))
    elif before is None:
        connection.execute(insert(table).values(host_id=host_id, **values))
    else:
        connection.execute(update(table).where(mine).values(**values))


def wait_left(connection: Connection, host_id: int, now: int) -> int:
    """Return how long the host has to wait for new work, s."""
    table = schema.host_backoffs
    until = connection.scalar(select(table.c.until).where(table.c.host_id == host_id))
    return max(0, (until or 0) - now)
