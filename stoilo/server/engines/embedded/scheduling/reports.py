"""What a host reports: results that ended, what they took, and which of the rest nobody needs.

Nothing of it is proven. It moves only what is this host's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, update

from stoilo.core.boinc.messages import ResultState
from stoilo.server.engines.embedded.accounts.quotas import note_errors, note_turned_away
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    CheckVerdict,
    counts,
    joined_results,
)
from stoilo.server.engines.embedded.files.mirrors import DOWNLOAD_FAILED
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Select, Update

    from stoilo.core.boinc.messages import ReportedResult
    from stoilo.server.engines.embedded.accounts.quotas import Quota
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.files.mirrors import Mirrors
    from stoilo.server.engines.embedded.scheduling.authenticate import Host


def load_held(
    connection: Connection, host_id: int, names: Iterable[str]
) -> dict[str, AnyRow]:
    """Return results by name: all in progress on a host, and its own of these (untrusted).

    Rows of `joined_results`. Of its results that are over only those are read that it names.
    """
    rows = connection.execute(_in_progress(), {"host": host_id}).all()
    held = {row.name: row for row in rows}
    others = [name for name in names if name not in held]
    if others:
        asked = {"host": host_id, "names": others}
        held |= {row.name: row for row in connection.execute(_by_name(), asked)}
    return held


@cache
def _in_progress() -> Select[Any]:
    results = schema.results
    here = results.c.state == ResultProgress.IN_PROGRESS.value
    return _of_host().where(here).order_by(results.c.id)


@cache
def _by_name() -> Select[Any]:
    name = schema.results.c.name
    return _of_host().where(name.in_(bindparam("names", expanding=True)))


def _of_host() -> Select[Any]:
    return joined_results().where(schema.results.c.host_id == bindparam("host"))


def is_needless(result: AnyRow) -> bool:
    """Say whether a result's host need not begin it, as in BOINC.

    Its workunit has its canonical result, or its deadline has passed; a spot check is
    always to be done.
    """
    late = result.outcome == ResultOutcome.NO_REPLY
    return not result.recheck and (late or result.wu_outcome == OutcomeKind.CANONICAL)


def is_resendable(result: AnyRow) -> bool:
    """Say whether a result's host gets it again when it has lost it."""
    running = result.state == ResultProgress.IN_PROGRESS
    wanted = result.recheck in {CheckVerdict.PENDING, CheckVerdict.OPEN}
    return running and (result.wu_outcome is None or wanted)


log = logging.getLogger(__name__)

# Reports of one call; a client sends again what was not acknowledged
REPORTS_TAKEN: Final = 128
STDERR_SHOWN = 400
# s and FLOP/s: keeps products finite; the server clamps by the limits
MOST = 1e15
# BOINC's exit status of a task that its user has aborted
ABORTED_VIA_GUI = 203
# BOINC's exit status of a task that was not begun because nobody needs it
ABORTED_BY_PROJECT = 202


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a result that was reported has ended."""

    result: AnyRow  # of `load_held`
    report: ReportedResult
    outcome: ResultOutcome
    code: str = ""
    at_fault: bool = False


def take_reports(
    connection: Connection,
    host: Host,  # who reports
    reports: Sequence[ReportedResult],  # what it says, each result once
    flops: float,  # its own benchmark, FLOP/s, 0 where it sends none
    # the host's results, those that it names among them
    held: Mapping[str, AnyRow],
    now: int,  # s
    mirrors: Mirrors,  # where the host was sent for files
) -> tuple[frozenset[str], dict[str, Quota]]:
    """Note finished results, as far as they are this host's and still count.

    Returns:
        the results that are over now, and the host's standing with every app.
    """
    quotas = host.quotas
    endings = [
        ending
        for report in reports
        if report.name in held and counts(held[report.name])
        if (ending := _ending(host, held[report.name], report, mirrors)) is not None
    ]
    if not endings:
        return frozenset(), quotas
    at_fault = [one.result for one in endings if one.at_fault]
    if at_fault:
        apps = [result.wu_app for result in at_fault]
        quotas = note_errors(connection, host.id, apps, quotas, now)
    aborted = [
        one for one in endings if one.at_fault and one.outcome is ResultOutcome.ABORTED
    ]
    if aborted:
        note_turned_away(connection, host.user_id, len(aborted), now)
    _write(connection, endings, flops, now)
    return frozenset(one.result.name for one in endings), quotas


def _ending(
    host: Host, result: AnyRow, report: ReportedResult, mirrors: Mirrors
) -> _Ending | None:
    """Return how a result has ended, None for a late failure: it is no reply already."""
    success = report.state == ResultState.UPLOADED and report.exit_status == 0
    if success and result.upload_digest is not None:
        return _Ending(result, report, ResultOutcome.SUCCESS)
    if result.state == ResultProgress.OVER:
        return None
    _tell(host, report)
    if mirrors.excuses(host.id, report, result.sent_at):
        return _Ending(result, report, ResultOutcome.NOT_NEEDED, "STO-E021")
    aborted = report.exit_status in {ABORTED_VIA_GUI, ABORTED_BY_PROJECT}
    called_off = report.exit_status == ABORTED_BY_PROJECT and is_needless(result)
    return _Ending(
        result,
        report,
        ResultOutcome.ABORTED if aborted else ResultOutcome.CLIENT_ERROR,
        "STO-E021",
        at_fault=not called_off,
    )


def _write(
    connection: Connection,
    endings: Sequence[_Ending],
    flops: float,
    now: int,
) -> None:
    rows = [
        {
            "row": one.result.id,
            "ended": one.outcome.value,
            "why": one.code,
            "now": now,
            # a client that measures no processor time says the elapsed one
            "time": min(one.report.cpu_s or one.report.elapsed_s, MOST),
            "speed": min(flops, MOST),
        }
        for one in endings
    ]
    connection.execute(_result_update(), rows)
    workunits = sorted({one.result.workunit_id for one in endings})
    connection.execute(
        _workunit_update(), [{"row": row, "now": now} for row in workunits]
    )


@cache
def _result_update() -> Update:
    table = schema.results
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            state=ResultProgress.OVER.value,
            outcome=bindparam("ended"),
            received_at=bindparam("now"),
            code=bindparam("why"),
            cpu_s=bindparam("time"),
            flops=bindparam("speed"),
        )
    )


@cache
def _workunit_update() -> Update:
    """Return the statement that workunit :row is due :now."""
    table = schema.workunits
    mine = table.c.id == bindparam("row")
    return update(table).where(mine).values(transition_at=bindparam("now"))


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


def some_download_failed(reports: Iterable[ReportedResult]) -> bool:
    """Say whether a host could not have a task's files: it gets no new results just now.

    BOINC's client keeps a file that failed while any task needs it: what needs the same
    file and came with the reply to that report would fail without being tried.
    """
    return any(report.exit_status == DOWNLOAD_FAILED for report in reports)


def needless_results(
    names: Iterable[str],  # what it says that it works on
    held: Mapping[str, AnyRow],  # its results
    over: frozenset[str],  # of them, those that it has just reported
) -> tuple[str, ...]:
    """Return which (untrusted) names are no results that the host should finish."""
    return tuple(
        name
        for name in names
        if name not in held or not counts(held[name]) or name in over
    )
