"""What a host reports, and which of its unfinished copies nobody needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from stoilo.executor.messages import ResultState
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.hosttrust import note_failed
from stoilo.server.engines.embedded.rules.quotas import note_error
from stoilo.server.engines.embedded.rules.transitioner import can_receive
from stoilo.server.engines.embedded.views import copy_of, load_view
from stoilo.server.engines.interface import CopyOutcome, CopyState, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from stoilo.executor.messages import ReportedResult, SchedulerRequest
    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.mirrorboard import MirrorBoard

__all__ = ["needless_copies", "optional_copies", "take_report"]

log = logging.getLogger(__name__)

STDERR_SHOWN = 400
ABORTED_VIA_GUI = 203
"""BOINC's exit status of a task that its user has aborted."""

ABORTED_BY_PROJECT = 202
"""BOINC's exit status of a task that was not begun because nobody needs it."""


def take_report(
    connection: Connection,
    host: Host,
    report: ReportedResult,
    now: int,
    mirrors: MirrorBoard,
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
        aborted = report.exit_status in {ABORTED_VIA_GUI, ABORTED_BY_PROJECT}
        outcome = CopyOutcome.ABORTED if aborted else CopyOutcome.CLIENT_ERROR
        code = "STO-E020" if success else "STO-E021"
        if row.state == CopyState.OVER.value:
            return  # a late failure is counted as no reply already
        _tell(host, report)
        if mirrors.excuses(host.id, report):
            outcome, code = CopyOutcome.REFUSED, "STO-B052"
        elif not _called_off(connection, host, report):
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


def _called_off(connection: Connection, host: Host, report: ReportedResult) -> bool:
    """Say whether the project let the host drop this copy, as its exit status says."""
    said = report.exit_status == ABORTED_BY_PROJECT
    return said and bool(_optional(connection, host, [report.name]))


def _tell(host: Host, report: ReportedResult) -> None:
    """Log what a host says of a task that failed: hostile text, cut and escaped."""
    log.info(
        "%s failed on host %d: state %d, exit status %d, %s",
        report.name,
        host.id,
        report.state,
        report.exit_status,
        ascii(report.stderr[-STDERR_SHOWN:]),
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


def optional_copies(
    connection: Connection, host: Host, request: SchedulerRequest
) -> tuple[str, ...]:
    """Return which unfinished copies the host need not begin (as BOINC does).

    Their workunit has its canonical result, or their deadline has passed; one that is
    running may finish and is still compared.
    """
    names = [other.name for other in request.other_results]
    return _optional(connection, host, names) if names else ()


def _optional(
    connection: Connection, host: Host, names: Sequence[str]
) -> tuple[str, ...]:
    """Return which of these copies the host need not begin."""
    table, of, checks = schema.copies, schema.workunits, schema.spot_checks
    late = table.c.outcome == CopyOutcome.NO_REPLY.value
    needed = select(checks.c.copy_id)
    rows = connection.scalars(
        select(table.c.name)
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.name.in_(names),
            table.c.host_id == host.id,
            (of.c.outcome == OutcomeKind.CANONICAL.value) | late,
            table.c.id.not_in(needed),
        )
    )
    return tuple(rows)
