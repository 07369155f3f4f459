"""Workunits, results and callers as the rules see them, and what the rules may demand.

Frozen values, nothing else; each demand is one durable step (`workunits.steps`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import (
    OutcomeKind,
    PairVerdict,
    ReceivedResult,
    ResultCheck,
    ResultOutcome,
    ResultProgress,
)
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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


class WorkunitState(StrEnum):
    """Whether anything can happen to a workunit any more."""

    RUNNING = "running"
    LINGERING = "lingering"  # it has ended, and late results are still compared
    OVER = "over"


class CheckVerdict(StrEnum):
    """How a spot check ended, or where one of its results stands."""

    NONE = ""  # of a result that is none of a spot check
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
    # where it stands if it was made after the end, to check the canonical result
    recheck: CheckVerdict = CheckVerdict.NONE

    @property
    def answered(self) -> bool:
        """Whether it is a re-check that nobody needs any more: another has decided."""
        return bool(self.recheck) and self.recheck not in RUNNING_CHECKS

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
        doubted = CheckVerdict.DOUBTED
        return next((one.name for one in self.results if one.recheck is doubted), "")

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
class Action:
    """Something that is to be done now; `Check`, `Judge` and `Compare` are questions."""


@dataclass(frozen=True, slots=True)
class _OfResult(Action):
    result: str  # its name


class Expire(_OfResult):
    """The result's deadline has passed: over, no reply."""


class Drop(_OfResult):
    """The result is not needed any more: over; a host that has it is told to abort."""


class Check(_OfResult):
    """Ask `Validation.check` about what the result brought."""


class Compare(_OfResult):
    """Compare the result with the canonical one: it came after the end."""


@dataclass(frozen=True, slots=True)
class Judge(Action):
    """Look for a quorum among these results (`validator.judge`)."""

    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create(Action):
    """Make that many new unsent results."""

    count: int


@dataclass(frozen=True, slots=True)
class Finish(Action):
    """Give the workunit its one final outcome."""

    kind: OutcomeKind


class ReleaseClass(Action):
    """Nothing came of the class of host that had the results: any class may have one."""


class Close(Action):
    """No result can come any more: the files of an ended workunit may go."""


class SecondOpinion(Action):
    """A re-check differed: let somebody else compute it once more before a verdict."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of looking for a quorum."""

    canonical: str  # name of the canonical result, empty when no quorum agrees
    same: tuple[str, ...] = ()  # results that agree with it, itself included


@dataclass(frozen=True, slots=True)
class Question:
    """What the validator has to answer before a workunit can move on."""

    workunit_id: int  # row of the workunit
    view: WorkunitView
    actions: Sequence[Check | Judge | Compare]
    results: Mapping[str, ReceivedResult]  # the files, by result name


@dataclass(slots=True)
class Answers:
    """The validator's answers to a `Question`."""

    workunit_id: int  # row of the workunit
    # verdicts by result name
    checks: dict[str, ResultCheck] = field(default_factory=dict)
    judged: tuple[str, ...] = ()  # the set that was looked at for a quorum
    judgement: Judgement | None = None  # None where a comparison gave no answer
    # late results compared with the canonical one, and those of them that differ and are
    # a second opinion with the re-check that is doubted
    pairs: dict[str, PairVerdict] = field(default_factory=dict)
    opinions: dict[str, PairVerdict] = field(default_factory=dict)
    fatal: ResultCheck | None = None  # the workunit cannot succeed
    again_in_s: int = 0  # when to ask again what was not decided; 0: all was


def workunit_columns() -> list[Any]:
    """Return the columns of a workunit, for a query that may name its results too."""
    return [column.label(f"wu_{column.name}") for column in schema.workunits.c]


def joined_results() -> AnySelect:
    """Return the query for results, each with its workunit's columns."""
    results, table = schema.results, schema.workunits
    return select(results, *workunit_columns()).join(
        table, table.c.id == results.c.workunit_id
    )


def _of_workunits(query: AnySelect, column: Any) -> AnySelect:  # noqa: ANN401
    return query.where(column.in_(bindparam("rows", expanding=True)))


# Built once: every step of every workunit asks them.
_WORKUNITS = _of_workunits(select(*workunit_columns()), schema.workunits.c.id)
_RESULTS = _of_workunits(select(schema.results), schema.results.c.workunit_id).order_by(
    schema.results.c.id
)


def result_of(row: AnyRow) -> Result:
    """Return one row of `schema.results` as the rules see it."""
    return Result(
        name=row.name,
        state=ResultProgress(row.state),
        outcome=ResultOutcome(row.outcome),
        validity=Validity(row.validity),
        user_id=row.user_id,
        host_key=row.host_key,
        deadline=row.deadline,
        recheck=CheckVerdict(row.recheck),
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
    return {row.wu_id: view_of(row, results[row.wu_id]) for row in rows}


def results_of(
    connection: Connection, workunits: Collection[int]
) -> dict[int, list[Result]]:
    """Return the results of each workunit, oldest first."""
    found: dict[int, list[Result]] = {row: [] for row in workunits}
    for row in connection.execute(_RESULTS, {"rows": list(workunits)}):
        found[row.workunit_id].append(result_of(row))
    return found


def view_of(
    row: AnyRow,  # with `workunit_columns`
    results: Iterable[Result],  # its own, oldest first
) -> WorkunitView:
    """Return a workunit as the rules see it."""
    return WorkunitView(
        redundancy=Redundancy(
            min_quorum=row.wu_min_quorum,
            target_results=row.wu_target_results,
            max_error=row.wu_max_error,
            max_total=row.wu_max_total,
            max_success=row.wu_max_success,
            delay_bound_s=row.wu_delay_bound_s,
        ),
        not_after=row.wu_not_after,
        results=tuple(results),
        outcome=None if row.wu_outcome is None else OutcomeKind(row.wu_outcome),
        canonical=row.wu_canonical or "",
        lingering=row.wu_state == WorkunitState.LINGERING,
        delivered=row.wu_tell_at is None,
        homogeneous=Homogeneity(row.wu_homogeneous),
        host_class=row.wu_host_class,
        alone=bool(row.wu_alone),
    )


def still_counts(state: ResultProgress, outcome: ResultOutcome) -> bool:
    """Say whether a result is on its host, or has only not come back in time."""
    late = state == ResultProgress.OVER and outcome == ResultOutcome.NO_REPLY
    return late or state == ResultProgress.IN_PROGRESS


def counts(result: AnyRow) -> bool:
    """Say the same of a row of `results`, with its workunit's ``wu_state``."""
    over = result.wu_state == WorkunitState.OVER
    return not over and still_counts(result.state, result.outcome)
