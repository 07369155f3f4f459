"""What a host reports: results that ended, what they took, and which of the rest nobody needs.

Nothing of it is proven. It moves only what is this host's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy import bindparam, select, update

from stoilo.core.boinc.messages import ResultState
from stoilo.server.db.bulk import insert_many
from stoilo.server.engines.embedded.accounts.host_filter import HostBounds
from stoilo.server.engines.embedded.accounts.host_trust import note_failed
from stoilo.server.engines.embedded.accounts.quotas import note_errors, note_turned_away
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import CheckVerdict
from stoilo.server.engines.embedded.files.mirrors import DOWNLOAD_FAILED
from stoilo.server.engines.embedded.workunits.transitioner import still_counts
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Select, Update

    from stoilo.core.boinc.messages import ReportedResult
    from stoilo.server.engines.embedded.accounts.quotas import Quota
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.files.mirrors import Mirrors
    from stoilo.server.engines.embedded.scheduling.authenticate import Host


@dataclass(frozen=True, slots=True)
class HeldResult:
    """A result that a host has or has had, and its workunit."""

    id: int  # its row
    name: str  # its own
    workunit_id: int  # row of the workunit
    workunit: str  # name of the workunit
    app: str  # of the workunit
    fpops_est: float  # of the workunit, FLOP
    fpops_bound: float  # of the workunit, FLOP
    result_max_bytes: int  # most bytes of its result file
    bounds: HostBounds  # what it needs of a host
    upload_name: str  # of its result file
    upload_token: str  # where that goes
    deadline: int  # s
    state: ResultProgress = ResultProgress.IN_PROGRESS  # as stored
    outcome: ResultOutcome = ResultOutcome.NONE  # as stored
    uploaded: bool = False  # its result file is here
    ended: OutcomeKind | None = None  # how the workunit ended, None before
    lingering: bool = False  # it has ended, and late results are still compared
    # state of the spot check that it is, None for an ordinary result
    recheck: CheckVerdict | None = None
    measured: bool = False  # what it took is known
    sent_at: int = 0  # s

    @classmethod
    def given(cls, row: AnyRow, deadline: int) -> Self:
        """Return the result of a row with `result_columns`, just handed out."""
        return cls(
            row.copy_id,
            row.result_name,
            row.workunit_id,
            row.workunit,
            row.app,
            row.fpops_est,
            row.fpops_bound,
            row.result_max_bytes,
            HostBounds(row.memory_bytes or 0, row.disk_bytes or 0),
            row.upload_name,
            row.upload_token,
            deadline,
        )

    @property
    def counts(self) -> bool:
        """Whether a report of it still matters."""
        wanted = self.ended is None or self.lingering
        return wanted and still_counts(self.state, self.outcome)

    @property
    def needless_to_begin(self) -> bool:
        """Whether its host need not begin it, as in BOINC.

        Its workunit has its canonical result, or its deadline has passed; a spot check is
        always to be done.
        """
        late = self.outcome is ResultOutcome.NO_REPLY
        return self.recheck is None and (late or self.ended is OutcomeKind.CANONICAL)

    @property
    def resendable(self) -> bool:
        """Whether its host gets it again when it has lost it."""
        running = self.state is ResultProgress.IN_PROGRESS
        wanted = self.recheck in {CheckVerdict.PENDING, CheckVerdict.OPEN}
        return running and (self.ended is None or wanted)


def load_held(
    connection: Connection, host_id: int, names: Iterable[str]
) -> dict[str, HeldResult]:
    """Return results by name: all in progress on a host, and its own of these (untrusted).

    Of its results that are over only those are read that it names.
    """
    rows = connection.execute(_in_progress(), {"host": host_id}).all()
    held = {row.result_name: _held(row) for row in rows}
    others = [name for name in names if name not in held]
    if others:
        asked = {"host": host_id, "names": others}
        rows = connection.execute(_by_name(), asked).all()
        held |= {row.result_name: _held(row) for row in rows}
    return held


def result_columns() -> list[Any]:
    """Return the columns of `results`, `workunits` and `bounds` that a reply names."""
    results, table, bounds = schema.results, schema.workunits, schema.bounds
    return [
        results.c.id.label("copy_id"),
        results.c.name.label("result_name"),
        results.c.workunit_id,
        results.c.upload_name,
        results.c.upload_token,
        table.c.name.label("workunit"),
        table.c.app,
        table.c.fpops_est,
        table.c.fpops_bound,
        table.c.result_max_bytes,
        bounds.c.memory_bytes,
        bounds.c.disk_bytes,
    ]


def _held(row: AnyRow) -> HeldResult:
    return replace(
        HeldResult.given(row, row.deadline),
        state=ResultProgress(row.state),
        outcome=ResultOutcome(row.result_outcome),
        uploaded=row.upload_digest is not None,
        ended=None if row.ended is None else OutcomeKind(row.ended),
        lingering=row.lingering is not None,
        recheck=None if row.verdict is None else CheckVerdict(row.verdict),
        measured=row.measured is not None,
        sent_at=row.sent_at,
    )


@cache
def _in_progress() -> Select[Any]:
    state = schema.results.c.state == ResultProgress.IN_PROGRESS.value
    return _results().where(state).order_by(schema.results.c.id)


@cache
def _by_name() -> Select[Any]:
    names = schema.results.c.name.in_(bindparam("names", expanding=True))
    return _results().where(names)


def _results() -> Select[Any]:
    results, table, ended = schema.results, schema.workunits, schema.lingering
    checks, used, bounds = schema.spot_checks, schema.usages, schema.bounds
    return (
        select(
            *result_columns(),
            results.c.state,
            results.c.outcome.label("result_outcome"),
            results.c.deadline,
            results.c.sent_at,
            results.c.upload_digest,
            table.c.outcome.label("ended"),
            ended.c.workunit_id.label("lingering"),
            checks.c.verdict,
            used.c.copy_id.label("measured"),
        )
        .join(table, table.c.id == results.c.workunit_id)
        .outerjoin(bounds, bounds.c.workunit_id == table.c.id)
        .outerjoin(ended, ended.c.workunit_id == table.c.id)
        .outerjoin(checks, checks.c.copy_id == results.c.id)
        .outerjoin(used, used.c.copy_id == results.c.id)
        .where(results.c.host_id == bindparam("host"))
    )


log = logging.getLogger(__name__)

# Reports of one call; a client sends again what was not acknowledged
REPORTS_TAKEN: Final = 128
STDERR_SHOWN = 400
# BOINC's exit status of a task that its user has aborted
ABORTED_VIA_GUI = 203
# BOINC's exit status of a task that was not begun because nobody needs it
ABORTED_BY_PROJECT = 202


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
    if mirrors.excuses(host.id, report, result.sent_at):
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
    names: Iterable[str],  # what it says that it works on
    held: Mapping[str, HeldResult],  # its results
    over: frozenset[str],  # of them, those that it has just reported
) -> tuple[str, ...]:
    """Return which (untrusted) names are no results that the host should finish."""
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
