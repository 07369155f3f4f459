"""What happens next to a workunit: BOINC's transitioner and validator rules, pure.

Every decision is a function of a frozen view and the time (s since 1970); nothing here
reads a clock, a file or a database. Source of the rules: BOINC's
``sched/transitioner.cpp`` (`handle_wu`) and ``sched/validator.cpp``, with what stoilo
adds: copies go to distinct users *and* hosts, a refusal by a volunteer's opt-in is not
counted as an error or a copy but capped, and no copy is issued whose deadline exceeds
the admission's end.

As in BOINC a limit is broken when it is *exceeded* (errors, successes without a quorum)
or when one more copy is needed and the total is used up. One kindness is ours: with the
total used up, copies that are still out may complete a quorum before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stoilo.server.engines.interface import CopyOutcome, CopyState, OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stoilo.core.types import Redundancy

__all__ = [
    "Action",
    "Check",
    "Copy",
    "Create",
    "Drop",
    "Expire",
    "Finish",
    "Judge",
    "Judgement",
    "Validity",
    "WorkunitView",
    "can_receive",
    "deadline_of",
    "judge",
    "may_issue",
    "next_actions",
    "next_transition",
    "refusal_cap",
]

ERROR_OUTCOMES = frozenset(
    {CopyOutcome.CLIENT_ERROR, CopyOutcome.NO_REPLY, CopyOutcome.INVALID}
)
REFUSALS_AT_LEAST = 10


class Validity(StrEnum):
    """How far a successful copy has come with the validator."""

    INIT = "init"  # not looked at
    CHECKED = "checked"  # passed the init validator, not yet compared
    INCONCLUSIVE = "inconclusive"  # compared, no quorum so far
    VALID = "valid"  # agrees with the canonical one
    INVALID = "invalid"  # refused by the init validator or outvoted


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy (BOINC: result, instance).

    Attributes:
        name: unique.
        state: unsent, in progress, over.
        outcome: how it ended, NONE before.
        validity: only meaningful for outcome SUCCESS.
        user_id: whose host has it, 0 while unsent.
        host_key: identity of the machine (BOINC's host CPID), empty while unsent.
        deadline: s, 0 while unsent.
    """

    name: str
    state: CopyState = CopyState.UNSENT
    outcome: CopyOutcome = CopyOutcome.NONE
    validity: Validity = Validity.INIT
    user_id: int = 0
    host_key: str = ""
    deadline: int = 0

    @property
    def viable(self) -> bool:
        """Whether it passed the init validator and may be part of a quorum."""
        return self.outcome is CopyOutcome.SUCCESS and self.validity in {
            Validity.CHECKED,
            Validity.INCONCLUSIVE,
            Validity.VALID,
        }


@dataclass(frozen=True, slots=True)
class WorkunitView:
    """Everything the rules look at.

    Attributes:
        redundancy: copies, quorum and limits.
        not_after: end of the admission, s.
        copies: oldest first.
        outcome: the final outcome, None before.
    """

    redundancy: Redundancy
    not_after: int
    copies: tuple[Copy, ...] = ()
    outcome: OutcomeKind | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """The copy's deadline has passed: over, no reply."""

    copy: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The copy is not needed any more: over; a host that has it is told to abort."""

    copy: str


@dataclass(frozen=True, slots=True)
class Create:
    """Make that many new unsent copies."""

    count: int


@dataclass(frozen=True, slots=True)
class Check:
    """Ask `Validation.check` about the copy's result."""

    copy: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Look for a quorum among these copies (`judge`)."""

    copies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the workunit its one final outcome."""

    kind: OutcomeKind


Action = Expire | Drop | Create | Check | Judge | Finish


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of looking for a quorum.

    Attributes:
        canonical: name of the canonical copy, empty when no quorum agrees.
        same: copies that agree with it, itself included.
    """

    canonical: str
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Counts:
    """Copies of a workunit by what they are."""

    unsent: int
    in_progress: int
    success: int
    errors: int
    refused: int
    total: int
    viable: int
    unchecked: int
    unjudged: int


def _count(copies: Iterable[Copy]) -> _Counts:
    """Count copies as BOINC does; refusals and never-sent ones are in no total."""
    every = tuple(copies)
    success = [
        copy
        for copy in every
        if copy.outcome is CopyOutcome.SUCCESS and copy.validity is not Validity.INVALID
    ]
    aside = {CopyOutcome.REFUSED, CopyOutcome.NOT_NEEDED}
    return _Counts(
        unsent=sum(copy.state is CopyState.UNSENT for copy in every),
        in_progress=sum(copy.state is CopyState.IN_PROGRESS for copy in every),
        success=len(success),
        errors=sum(copy.outcome in ERROR_OUTCOMES for copy in every),
        refused=sum(copy.outcome is CopyOutcome.REFUSED for copy in every),
        total=sum(copy.outcome not in aside for copy in every),
        viable=sum(copy.viable for copy in every),
        unchecked=sum(copy.validity is Validity.INIT for copy in success),
        unjudged=sum(copy.validity is Validity.CHECKED for copy in success),
    )


def refusal_cap(redundancy: Redundancy) -> int:
    """Return how many opt-in refusals a workunit survives; one more ends it."""
    return max(REFUSALS_AT_LEAST, 2 * redundancy.max_total)


def deadline_of(redundancy: Redundancy, now: int) -> int:
    """Return the deadline, s, of a copy issued at `now`."""
    return now + redundancy.delay_bound_s


def may_issue(view: WorkunitView, user_id: int, host_key: str, now: int) -> bool:
    """Say whether a copy may go to this user's host now.

    Distinct users and hosts hold over every copy ever sent, whatever became of it.
    """
    if view.outcome is not None or _admission_over(view, now):
        return False
    return all(
        copy.user_id == 0 or (copy.user_id != user_id and copy.host_key != host_key)
        for copy in view.copies
    )


def can_receive(view: WorkunitView, copy: Copy) -> bool:
    """Say whether a report or upload for `copy` still counts.

    A late result counts as long as the workunit has no outcome (as BOINC does).
    """
    late = copy.state is CopyState.OVER and copy.outcome is CopyOutcome.NO_REPLY
    return view.outcome is None and (copy.state is CopyState.IN_PROGRESS or late)


def next_actions(view: WorkunitView, now: int) -> list[Action]:
    """Return what is to be done now, in order; empty when there is only waiting.

    After doing them the caller asks again until the list is empty. Checks and
    judgements come before limits: a quorum that is there wins over an error beside it.
    """
    if view.outcome is not None:
        return [Drop(copy.name) for copy in view.copies if _is_open(copy)]
    counts = _count(view.copies)
    return _expiries(view, now) or _checks(view, counts) or _limits(view, counts, now)


def next_transition(view: WorkunitView, now: int) -> int:
    """Return when time alone will next matter, s; far future when it never does."""
    if view.outcome is not None:
        return 2**62
    times = [
        copy.deadline + 1 for copy in view.copies if copy.state is CopyState.IN_PROGRESS
    ]
    last_issue = view.not_after - view.redundancy.delay_bound_s + 1
    if last_issue > now:
        times.append(last_issue)
    return max(now, min(times, default=now))


def judge(
    names: tuple[str, ...], quorum: int, same: Callable[[str, str], bool]
) -> Judgement:
    """Look for a copy that at least `quorum` copies, itself included, agree with.

    Candidates are tried in order, as in BOINC's `check_set`; `same` is called with the
    candidate first and is not assumed to be symmetric or transitive. With a quorum of 1
    nobody is compared.
    """
    if quorum == 1:
        return Judgement(names[0], names[:1]) if names else Judgement("")
    for candidate in names:
        agree = [
            other for other in names if other == candidate or same(candidate, other)
        ]
        if len(agree) >= quorum:
            return Judgement(candidate, tuple(agree))
    return Judgement("")


def _expiries(view: WorkunitView, now: int) -> list[Action]:
    """Return the copies whose deadline has passed."""
    return [
        Expire(copy.name)
        for copy in view.copies
        if copy.state is CopyState.IN_PROGRESS and copy.deadline < now
    ]


def _checks(view: WorkunitView, counts: _Counts) -> list[Action]:
    """Return what the validator has to look at: single results first, then the set."""
    if counts.unchecked:
        return [Check(copy.name) for copy in view.copies if _is_unchecked(copy)]
    if counts.unjudged and counts.viable >= view.redundancy.min_quorum:
        return [Judge(tuple(copy.name for copy in view.copies if copy.viable))]
    return []


def _limits(view: WorkunitView, counts: _Counts, now: int) -> list[Action]:
    """Return the end that a limit demands, or the copies that are missing."""
    broken = _broken_limit(view.redundancy, counts)
    if broken is not None:
        return [Finish(broken)]
    if _admission_over(view, now):
        return _wind_down(view, counts)
    return _top_up(view.redundancy, counts)


def _is_open(copy: Copy) -> bool:
    """Say whether the copy waits for a host or is on one."""
    return copy.state is not CopyState.OVER


def _is_unchecked(copy: Copy) -> bool:
    """Say whether the init validator has yet to look."""
    return copy.outcome is CopyOutcome.SUCCESS and copy.validity is Validity.INIT


def _admission_over(view: WorkunitView, now: int) -> bool:
    """Say whether a copy issued now would outlive the admission."""
    return deadline_of(view.redundancy, now) > view.not_after


def _target(redundancy: Redundancy, counts: _Counts) -> int:
    """Return how many copies are wanted; one more than disagree, once they do."""
    if counts.viable >= redundancy.min_quorum:
        return max(redundancy.target_results, counts.viable + 1)
    return redundancy.target_results


def _needed(redundancy: Redundancy, counts: _Counts) -> int:
    """Return how many copies are missing."""
    have = counts.unsent + counts.in_progress + counts.success
    return max(0, _target(redundancy, counts) - have)


def _broken_limit(redundancy: Redundancy, counts: _Counts) -> OutcomeKind | None:
    """Return which limit ends the workunit, if any."""
    if counts.errors > redundancy.max_error:
        return OutcomeKind.TOO_MANY_ERRORS
    if counts.viable > redundancy.max_success:
        return OutcomeKind.TOO_MANY_SUCCESS
    if counts.refused > refusal_cap(redundancy):
        return OutcomeKind.TOO_MANY_REFUSALS
    if _needed(redundancy, counts) and counts.total >= redundancy.max_total:
        open_copies = counts.unsent + counts.in_progress
        hopeless = counts.success + open_copies < redundancy.min_quorum
        if hopeless or not open_copies:
            return OutcomeKind.TOO_MANY_TOTAL
    return None


def _wind_down(view: WorkunitView, counts: _Counts) -> list[Action]:
    """Issue nothing more; end once no host is working on a copy."""
    unsent = [copy for copy in view.copies if copy.state is CopyState.UNSENT]
    if unsent:
        return [Drop(copy.name) for copy in unsent]
    if counts.in_progress:
        return []
    return [Finish(OutcomeKind.ADMISSION_ENDED)]


def _top_up(redundancy: Redundancy, counts: _Counts) -> list[Action]:
    """Create the copies that are missing, within the total."""
    room = redundancy.max_total - counts.total
    count = min(_needed(redundancy, counts), room)
    return [Create(count)] if count > 0 else []
