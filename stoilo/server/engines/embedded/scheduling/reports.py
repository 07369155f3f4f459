"""What a host reports, and which of its unfinished results nobody needs any more."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, update

from stoilo.core.boinc.messages import ResultState
from stoilo.server.db.bulk import insert_many
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.files.mirrors import DOWNLOAD_FAILED
from stoilo.server.engines.embedded.hosts.conduct import note_turned_away
from stoilo.server.engines.embedded.hosts.host_trust import note_failed
from stoilo.server.engines.embedded.hosts.quotas import note_errors
from stoilo.server.engines.interface import ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Update

    from stoilo.core.boinc.messages import ReportedResult
    from stoilo.server.engines.embedded.files.mirrors import Mirrors
    from stoilo.server.engines.embedded.hosts.quotas import Quota
    from stoilo.server.engines.embedded.scheduling.authenticate import Host
    from stoilo.server.engines.embedded.scheduling.in_progress import (
        HeldResult,
    )


__all__ = [
    "REPORTS_TAKEN",
    "needless_results",
    "note_usages",
    "optional_results",
    "some_download_failed",
    "take_reports",
]


log = logging.getLogger(__name__)

REPORTS_TAKEN: Final = 128
"""Reports of one call; a client sends again what was not acknowledged."""

STDERR_SHOWN = 400
ABORTED_VIA_GUI = 203
"""BOINC's exit status of a task that its user has aborted."""

ABORTED_BY_PROJECT = 202
"""BOINC's exit status of a task that was not begun because nobody needs it."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a result that was reported has ended."""

    result: HeldResult
    outcome: ResultOutcome
    code: str
    at_fault: bool = False

    @property
    def aborted(self) -> bool:
        """Whether the volunteer, or his client, has ended it."""
        return self.outcome is ResultOutcome.ABORTED


def take_reports(
    connection: Connection,
    host: Host,  # who reports
    reports: Iterable[ReportedResult],  # what it says, each result once
    # the host's results, those that it names among them
    held: Mapping[str, HeldResult],
    quotas: dict[str, Quota],  # its standing with every app
    now: int,  # s
    mirrors: Mirrors,  # where the host was sent for files
) -> tuple[frozenset[str], dict[str, Quota]]:
    """Note finished results, as far as they are this host's and still count.

    Returns:
        the results that are over now, and what became of the quotas.
    """
    endings = []
    for report in reports:
        result = held.get(report.name)
        ending = (
            _ending(host, result, report, mirrors) if result and result.counts else None
        )
        if ending is not None:
            endings.append(ending)
    if not endings:
        return frozenset(), quotas
    at_fault = [one.result for one in endings if one.at_fault]
    if at_fault:
        apps = [result.app for result in at_fault]
        quotas = note_errors(connection, host.id, apps, quotas, now)
        note_failed(connection, [result.name for result in at_fault])
    aborted = [one for one in endings if one.at_fault and one.aborted]
    if aborted:
        note_turned_away(connection, host.user_id, len(aborted), now)
    _write(connection, endings, now)
    return frozenset(one.result.name for one in endings), quotas


def _ending(
    host: Host, result: HeldResult, report: ReportedResult, mirrors: Mirrors
) -> _Ending | None:
    """Return how a result has ended, None for a late failure: it is no reply already."""
    success = report.state == ResultState.UPLOADED and report.exit_status == 0
    if success and result.uploaded:
        return _Ending(result, ResultOutcome.SUCCESS, "")
    if result.state is ResultProgress.OVER:
        return None
    _tell(host, report)
    if mirrors.excuses(host.id, report):
        return _Ending(result, ResultOutcome.NOT_NEEDED, "STO-B052")
    aborted = report.exit_status in {ABORTED_VIA_GUI, ABORTED_BY_PROJECT}
    called_off = report.exit_status == ABORTED_BY_PROJECT and result.needless_to_begin
    return _Ending(
        result,
        ResultOutcome.ABORTED if aborted else ResultOutcome.CLIENT_ERROR,
        "STO-E020" if success else "STO-E021",
        at_fault=not called_off,
    )


def _write(connection: Connection, endings: Sequence[_Ending], now: int) -> None:
    """Write how results have ended, and that their workunits are to be looked at."""
    rows = [
        {"row": one.result.id, "ended": one.outcome.value, "why": one.code, "now": now}
        for one in endings
    ]
    connection.execute(_result_update(), rows)
    workunits = sorted({one.result.workunit_id for one in endings})
    connection.execute(
        _workunit_update(), [{"row": row, "now": now} for row in workunits]
    )


@cache
def _result_update() -> Update:
    """Return the statement that result :row is over."""
    table = schema.results
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            state=ResultProgress.OVER.value,
            outcome=bindparam("ended"),
            received_at=bindparam("now"),
            code=bindparam("why"),
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
    names: Iterable[str], held: Mapping[str, HeldResult], over: frozenset[str]
) -> tuple[str, ...]:
    """Return which (untrusted) names are no results that the host should finish.

    Args:
        names: what it says that it works on.
        held: its results.
        over: of them, those that it has just reported.
    """
    return tuple(
        name
        for name in names
        if name not in held or not held[name].counts or name in over
    )


def optional_results(
    names: Iterable[str], held: Mapping[str, HeldResult]
) -> tuple[str, ...]:
    """Return which unfinished results the host need not begin (as BOINC does).

    One that is running may finish and is still compared.
    """
    return tuple(
        name for name in names if name in held and held[name].needless_to_begin
    )


MOST = 1e15  # s and FLOP/s: keeps products finite; the server clamps by the limits


def note_usages(
    connection: Connection,
    held: Mapping[str, HeldResult],  # the host's results
    # what it says; names of others' results are passed over
    reports: Iterable[ReportedResult],
    flops: float,  # the host's own benchmark, FLOP/s, 0 where it sends none
) -> None:
    """Keep the times of a host's own uploaded results; what came first stays.

    A client that measures no processor time says the elapsed one.
    """
    times = {report.name: report.cpu_s or report.elapsed_s for report in reports}
    said = {name: time for name, time in times.items() if time > 0 and name in held}
    fresh = [
        {
            "copy_id": held[name].id,
            "cpu_s": min(time, MOST),
            "flops": min(max(flops, 0.0), MOST),
        }
        for name, time in said.items()
        if held[name].uploaded and not held[name].measured
    ]
    insert_many(connection, schema.usages, fresh)
