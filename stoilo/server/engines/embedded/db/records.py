"""Workunits, results and callers as the rules see them, and what the rules may demand.

Frozen values, nothing else; each demand is one durable step (`workunits.steps`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow, AnySelect


class Validity(StrEnum):
    """How far a successful result has come with the validator."""

    INIT = "init"  # not looked at
    CHECKED = "checked"  # passed the init validator, not yet compared
    INCONCLUSIVE = "inconclusive"  # compared, no quorum so far
    VALID = "valid"  # agrees with the canonical one, or is a trusted re-check
    INVALID = "invalid"  # refused by the init validator or outvoted
    TOO_LATE = "too_late"  # nothing is left to compare it with: neither of the two


class CheckVerdict(StrEnum):
    """How a spot check ended, or where one of its results stands."""

    PENDING = "pending"  # a result for trusted hosts
    OPEN = "open"  # a second opinion that any host may give
    DOUBTED = "doubted"  # it differed; a second opinion is asked for
    SECOND = "second"  # was a second opinion: the first result has the verdict
    SAME = "same"
    DIFFERENT = "different"
    DISPUTED = "disputed"  # two re-checks do not prove anything together
    UNFINISHED = "unfinished"  # nobody brought a result in time


# Of the results of a spot check that has not ended
RUNNING_CHECKS = frozenset(
    {CheckVerdict.PENDING, CheckVerdict.OPEN, CheckVerdict.DOUBTED}
)
# Neither valid nor invalid yet
UNDECIDED = frozenset({Validity.INIT, Validity.CHECKED, Validity.INCONCLUSIVE})


@dataclass(frozen=True, slots=True)
class Result:
    """One result (BOINC: result, instance)."""

    name: str  # unique
    state: ResultProgress = ResultProgress.UNSENT  # unsent, in progress, over
    outcome: ResultOutcome = ResultOutcome.NONE  # how it ended, NONE before
    validity: Validity = Validity.INIT  # only meaningful for outcome SUCCESS
    user_id: int = 0  # whose host has it, 0 while unsent
    # identity of the machine (BOINC's host CPID), empty while unsent
    host_key: str = ""
    deadline: int = 0  # s, 0 while unsent
    # made after the end, to check the canonical result (a spot check)
    recheck: bool = False
    doubts: bool = False  # a re-check that differed from the canonical result
    # a re-check that any host may have, not only a trusted one
    for_anybody: bool = False
    # a re-check that nobody needs any more: another one has decided
    answered: bool = False

    @property
    def viable(self) -> bool:
        """Whether it passed the init validator and may be part of a quorum."""
        return self.outcome is ResultOutcome.SUCCESS and self.validity in {
            Validity.CHECKED,
            Validity.INCONCLUSIVE,
            Validity.VALID,
        }

    @property
    def unchecked(self) -> bool:
        """Whether the init validator has yet to look."""
        return self.outcome is ResultOutcome.SUCCESS and self.validity is Validity.INIT

    @property
    def undecided(self) -> bool:
        """Whether it came back and is neither valid nor invalid."""
        return self.outcome is ResultOutcome.SUCCESS and self.validity in UNDECIDED


@dataclass(frozen=True, slots=True)
class WorkunitView:
    """Everything the rules look at."""

    redundancy: Redundancy  # results, quorum and limits as they were asked for
    not_after: int  # end of the admission, s
    results: tuple[Result, ...] = ()  # oldest first
    outcome: OutcomeKind | None = None  # the final outcome, None before
    canonical: str = ""  # name of the canonical result, empty without
    # it has ended with a canonical result, and that is still here to compare late
    # results with
    lingering: bool = False
    delivered: bool = True  # the server has taken the outcome, if there is one
    # how alike the hosts of its results must be
    homogeneous: Homogeneity = Homogeneity.NONE
    # the class of host that it is committed to, empty while to none
    host_class: str = ""
    # one result is enough as long as only trusted hosts got one (adaptive replication)
    alone: bool = False

    @property
    def doubt(self) -> str:
        """The re-check that differed from the canonical result, empty without one."""
        return next((result.name for result in self.results if result.doubts), "")

    @property
    def in_force(self) -> Redundancy:
        """The redundancy that holds now: one result while it is `alone`."""
        if not self.alone:
            return self.redundancy
        return replace(self.redundancy, min_quorum=1, target_results=1)


@dataclass(frozen=True, slots=True)
class Caller:
    """The host that asks for work."""

    user_id: int  # whose it is
    host_key: str  # its own identity: BOINC's host CPID, or what stands for it
    # its coarse class, empty when unknown (`host_trust.homogeneous_class`)
    coarse: str = ""
    fine: str = ""  # its fine class
    trusted_account: bool = False  # it is one of the operator's own machines
    # the CPID that it shows; another account's host may have shown it first
    cpid: str = ""
    # its account is one of a stranger who has helped with nothing yet
    newcomer: bool = False

    def class_for(self, homogeneous: Homogeneity) -> str:
        """Return the class that matters for a kind of homogeneity; empty: unknown."""
        return self.coarse if homogeneous is Homogeneity.COARSE else self.fine


@dataclass(frozen=True, slots=True)
class Expire:
    """The result's deadline has passed: over, no reply."""

    result: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The result is not needed any more: over; a host that has it is told to abort."""

    result: str


@dataclass(frozen=True, slots=True)
class Create:
    """Make that many new unsent results."""

    count: int


@dataclass(frozen=True, slots=True)
class ReleaseClass:
    """Nothing came of the class of host that had the results: any class may have one."""


@dataclass(frozen=True, slots=True)
class Check:
    """Ask `Validation.check` about what the result brought."""

    result: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Look for a quorum among these results (`validator.judge`)."""

    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare the result with the canonical one: it came after the end."""

    result: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the workunit its one final outcome."""

    kind: OutcomeKind


@dataclass(frozen=True, slots=True)
class Close:
    """No result can come any more: the files of an ended workunit may go."""


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """A re-check differed: let somebody else compute it once more before a verdict."""


Action = (
    Expire
    | Drop
    | Create
    | ReleaseClass
    | Check
    | Judge
    | Compare
    | Finish
    | Close
    | SecondOpinion
)


def _workunit_query() -> AnySelect:
    table = schema.workunits
    spread, ended, box = schema.replications, schema.lingering, schema.outbox
    return (
        select(table, *view_columns())
        .outerjoin(spread, spread.c.workunit_id == table.c.id)
        .outerjoin(ended, ended.c.workunit_id == table.c.id)
        .outerjoin(box, box.c.workunit_id == table.c.id)
        .where(table.c.id.in_(bindparam("rows", expanding=True)))
    )


def view_columns() -> list[Any]:
    """Return what a view needs of `replications`, `lingering` and `outbox`."""
    spread, ended, box = schema.replications, schema.lingering, schema.outbox
    return [
        spread.c.homogeneous,
        spread.c.host_class,
        spread.c.alone,
        ended.c.workunit_id.label("lingering"),
        box.c.workunit_id.label("undelivered"),
    ]


def _results_query() -> AnySelect:
    table, checks = schema.results, schema.spot_checks
    return (
        select(table, checks.c.verdict.label("check"))
        .outerjoin(checks, checks.c.copy_id == table.c.id)
        .where(table.c.workunit_id.in_(bindparam("rows", expanding=True)))
        .order_by(table.c.id)
    )


# Built once: every step of every workunit asks them.
_WORKUNITS, _RESULTS = _workunit_query(), _results_query()


def result_of(
    row: AnyRow,  # of the table
    # the `CheckVerdict` of a re-check, None for any other result
    check: str | None = None,
) -> Result:
    """Return one row of `schema.results` as the rules see it."""
    return Result(
        name=row.name,
        state=ResultProgress(row.state),
        outcome=ResultOutcome(row.outcome),
        validity=Validity(row.validity),
        user_id=row.user_id,
        host_key=row.host_key,
        deadline=row.deadline,
        recheck=check is not None,
        doubts=check == CheckVerdict.DOUBTED,
        for_anybody=check == CheckVerdict.OPEN,
        answered=check is not None and check not in RUNNING_CHECKS,
    )


def load_view(connection: Connection, workunit_id: int) -> WorkunitView:
    """Return a workunit as the rules see it."""
    return load_views(connection, [workunit_id])[workunit_id]


def load_views(
    connection: Connection, workunits: Collection[int]
) -> dict[int, WorkunitView]:
    """Return workunits as the rules see them; all of them exist."""
    if not workunits:
        return {}
    rows = connection.execute(_WORKUNITS, {"rows": list(workunits)}).all()
    results = results_of(connection, workunits)
    return {row.id: view_of(row, results[row.id]) for row in rows}


def results_of(
    connection: Connection, workunits: Collection[int]
) -> dict[int, list[Result]]:
    """Return the results of each workunit, oldest first."""
    found: dict[int, list[Result]] = {row: [] for row in workunits}
    rows = connection.execute(_RESULTS, {"rows": list(workunits)}).all()
    for row in rows:
        found[row.workunit_id].append(result_of(row, row.check))
    return found


def view_of(
    row: AnyRow,  # of `workunits`, with `view_columns`
    results: Iterable[Result],  # its own, oldest first
) -> WorkunitView:
    """Return a workunit as the rules see it."""
    return WorkunitView(
        redundancy=Redundancy(
            min_quorum=row.min_quorum,
            target_results=row.target_results,
            max_error=row.max_error,
            max_total=row.max_total,
            max_success=row.max_success,
            delay_bound_s=row.delay_bound_s,
        ),
        not_after=row.not_after,
        results=tuple(results),
        outcome=None if row.outcome is None else OutcomeKind(row.outcome),
        canonical=row.canonical or "",
        lingering=row.lingering is not None,
        delivered=row.undelivered is None,
        homogeneous=Homogeneity(row.homogeneous or ""),
        host_class=row.host_class or "",
        alone=bool(row.alone),
    )
