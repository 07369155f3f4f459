"""What a host reports, and which of its unfinished copies nobody needs any more."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, update

from stoilo.core.boinc.messages import ResultState
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.conduct import note_turned_away
from stoilo.server.engines.embedded.rules.hosttrust import note_failed
from stoilo.server.engines.embedded.rules.quotas import note_errors
from stoilo.server.engines.interface import CopyOutcome, CopyState
from stoilo.server.engines.mirrorboard import DOWNLOAD_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Update

    from stoilo.core.boinc.messages import ReportedResult
    from stoilo.server.engines.embedded.rules.quotas import Quota
    from stoilo.server.engines.embedded.scheduling.holdings import HeldCopy
    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.mirrorboard import MirrorBoard

__all__ = [
    "REPORTS_TAKEN",
    "needless_copies",
    "optional_copies",
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
    """How a copy that was reported has ended."""

    copy: HeldCopy
    outcome: CopyOutcome
    code: str
    at_fault: bool = False

    @property
    def aborted(self) -> bool:
        """Whether the volunteer, or his client, has ended it."""
        return self.outcome is CopyOutcome.ABORTED


def take_reports(
    connection: Connection,
    host: Host,
    reports: Iterable[ReportedResult],
    held: Mapping[str, HeldCopy],
    quotas: dict[str, Quota],
    now: int,
    mirrors: MirrorBoard,
) -> tuple[frozenset[str], dict[str, Quota]]:
    """Note finished copies, as far as they are this host's and still count.

    Args:
        connection: inside a write transaction.
        host: who reports.
        reports: what it says, each copy once.
        held: the host's copies, those that it names among them.
        quotas: its standing with every app.
        now: s.
        mirrors: where the host was sent for files.

    Returns:
        the copies that are over now, and what became of the quotas.
    """
    endings = []
    for report in reports:
        copy = held.get(report.name)
        ending = _ending(host, copy, report, mirrors) if copy and copy.counts else None
        if ending is not None:
            endings.append(ending)
    if not endings:
        return frozenset(), quotas
    at_fault = [one.copy for one in endings if one.at_fault]
    if at_fault:
        apps = [copy.app for copy in at_fault]
        quotas = note_errors(connection, host.id, apps, quotas, now)
        note_failed(connection, [copy.name for copy in at_fault])
    aborted = [one for one in endings if one.at_fault and one.aborted]
    if aborted:
        note_turned_away(connection, host.user_id, len(aborted), now)
    _write(connection, endings, now)
    return frozenset(one.copy.name for one in endings), quotas


def _ending(
    host: Host, copy: HeldCopy, report: ReportedResult, mirrors: MirrorBoard
) -> _Ending | None:
    """Return how a copy has ended, None for a late failure: it is no reply already."""
    success = report.state == ResultState.UPLOADED and report.exit_status == 0
    if success and copy.uploaded:
        return _Ending(copy, CopyOutcome.SUCCESS, "")
    if copy.state is CopyState.OVER:
        return None
    _tell(host, report)
    if mirrors.excuses(host.id, report):
        return _Ending(copy, CopyOutcome.NOT_NEEDED, "STO-B052")
    aborted = report.exit_status in {ABORTED_VIA_GUI, ABORTED_BY_PROJECT}
    called_off = report.exit_status == ABORTED_BY_PROJECT and copy.needless_to_begin
    return _Ending(
        copy,
        CopyOutcome.ABORTED if aborted else CopyOutcome.CLIENT_ERROR,
        "STO-E020" if success else "STO-E021",
        at_fault=not called_off,
    )


def _write(connection: Connection, endings: Sequence[_Ending], now: int) -> None:
    """Write how copies have ended, and that their workunits are to be looked at."""
    rows = [
        {"row": one.copy.id, "ended": one.outcome.value, "why": one.code, "now": now}
        for one in endings
    ]
    connection.execute(_copy_update(), rows)
    workunits = sorted({one.copy.workunit_id for one in endings})
    connection.execute(
        _workunit_update(), [{"row": row, "now": now} for row in workunits]
    )


@cache
def _copy_update() -> Update:
    """Return the statement that copy :row is over."""
    table = schema.copies
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            state=CopyState.OVER.value,
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
    """Say whether a host could not have a task's files: it gets no new copies just now.

    BOINC's client keeps a file that failed while any task needs it: what needs the same
    file and came with the reply to that report would fail without being tried.
    """
    return any(report.exit_status == DOWNLOAD_FAILED for report in reports)


def needless_copies(
    names: Iterable[str], held: Mapping[str, HeldCopy], over: frozenset[str]
) -> tuple[str, ...]:
    """Return which (untrusted) names are no copies that the host should finish.

    Args:
        names: what it says that it works on.
        held: its copies.
        over: of them, those that it has just reported.
    """
    return tuple(
        name
        for name in names
        if name not in held or not held[name].counts or name in over
    )


def optional_copies(
    names: Iterable[str], held: Mapping[str, HeldCopy]
) -> tuple[str, ...]:
    """Return which unfinished copies the host need not begin (as BOINC does).

    One that is running may finish and is still compared.
    """
    return tuple(
        name for name in names if name in held and held[name].needless_to_begin
    )
