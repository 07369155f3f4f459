"""The results of a host, with what a call has to know of each: one query, rarely two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import bindparam, select

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import CheckVerdict
from stoilo.server.engines.embedded.hosts.host_filter import HostBounds
from stoilo.server.engines.embedded.workunits.transitioner import still_counts
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Row, Select

__all__ = ["HeldResult", "load_held", "result_columns"]


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

    @classmethod
    def given(cls, row: Row, deadline: int) -> Self:  # type: ignore[type-arg]  # `result_columns`
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


def _held(row: Row) -> HeldResult:  # type: ignore[type-arg]  # of `_results`
    """Return one row."""
    return HeldResult(
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
        row.deadline,
        ResultProgress(row.state),
        ResultOutcome(row.result_outcome),
        row.upload_digest is not None,
        None if row.ended is None else OutcomeKind(row.ended),
        row.lingering is not None,
        None if row.verdict is None else CheckVerdict(row.verdict),
        row.measured is not None,
    )


@cache
def _in_progress() -> Select[Any]:
    """Return the query for what :host should have, oldest first."""
    state = schema.results.c.state == ResultProgress.IN_PROGRESS.value
    return _results().where(state).order_by(schema.results.c.id)


@cache
def _by_name() -> Select[Any]:
    """Return the query for those of :names that :host has had."""
    names = schema.results.c.name.in_(bindparam("names", expanding=True))
    return _results().where(names)


def _results() -> Select[Any]:
    """Return the query for results of :host."""
    results, table, ended = schema.results, schema.workunits, schema.lingering
    checks, used, bounds = schema.spot_checks, schema.usages, schema.bounds
    return (
        select(
            *result_columns(),
            results.c.state,
            results.c.outcome.label("result_outcome"),
            results.c.deadline,
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
