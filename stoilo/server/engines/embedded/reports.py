"""What a host reports, and which of its unfinished copies nobody needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from stoilo.executor.messages import ResultState
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.hosttrust import note_failed
from stoilo.server.engines.embedded.quotas import note_error
from stoilo.server.engines.embedded.transitioner import can_receive
from stoilo.server.engines.embedded.views import copy_of, load_view
from stoilo.server.engines.interface import CopyOutcome, CopyState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.executor.messages import ReportedResult, SchedulerRequest
    from stoilo.server.engines.embedded.hosts import Host

__all__ = ["late_copies", "needless_copies", "take_report"]

ABORTED_VIA_GUI = 203
"""BOINC's exit status of a task that its user has aborted."""


def take_report(
    connection: Connection, host: Host, report: ReportedResult, now: int
) -> None:
    """Note a finished copy, if it is this host's and still counts; else ignore it."""
    table = schema.copies
    row = connection.execute(
        select(table).where(table.c.name == report.name, table.c.host_id == host.id)
    ).first()
    if row is None:
        return
    if not can_receive(load_view(connection, row.workunit_id), copy_of(row)):
        return
    success = report.state == ResultState.UPLOADED and report.exit_status == 0
    if success and row.upload_digest is not None:
        outcome, code = CopyOutcome.SUCCESS, ""
    else:
        aborted = report.exit_status == ABORTED_VIA_GUI
        outcome = CopyOutcome.ABORTED if aborted else CopyOutcome.CLIENT_ERROR
        code = "STO-E020" if success else "STO-E021"
        if row.state == CopyState.OVER.value:
            return  # a late failure is counted as no reply already
        note_error(connection, row.name, now)
        note_failed(connection, [row.name])
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(
            state=CopyState.OVER.value,
            outcome=outcome.value,
            received_at=now,
            code=code,
        )
    )
    connection.execute(
        update(schema.workunits)
        .where(schema.workunits.c.id == row.workunit_id)
        .values(transition_at=now)
    )


def needless_copies(
    connection: Connection, host: Host, request: SchedulerRequest
) -> tuple[str, ...]:
    """Return which unfinished copies the host need not finish."""
    names = [other.name for other in request.other_results]
    if not names:
        return ()
    table = schema.copies
    rows = connection.execute(
        select(table).where(table.c.name.in_(names), table.c.host_id == host.id)
    ).all()
    wanted = {
        row.name
        for row in rows
        if can_receive(load_view(connection, row.workunit_id), copy_of(row))
    }
    return tuple(name for name in names if name not in wanted)


def late_copies(
    connection: Connection, host: Host, request: SchedulerRequest
) -> tuple[str, ...]:
    """Return which unfinished copies the host need not begin any more.

    They are past their deadline and others are under way; one that runs already may still
    come in first.
    """
    names = [other.name for other in request.other_results]
    if not names:
        return ()
    table = schema.copies
    rows = connection.execute(
        select(table).where(
            table.c.name.in_(names),
            table.c.host_id == host.id,
            table.c.outcome == CopyOutcome.NO_REPLY.value,
        )
    ).all()
    return tuple(
        row.name
        for row in rows
        if can_receive(load_view(connection, row.workunit_id), copy_of(row))
    )
