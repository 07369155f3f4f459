"""What happens next to a workunit: BOINC's transitioner and validator rules, pure.

Every decision is a function of a frozen view and the time (s since 1970); nothing here
reads a clock, a file or a database. Source of the rules: BOINC's
``sched/transitioner.cpp`` and ``sched/validator.cpp`` (`handle_wu` in both),
``sched/validate_util2.cpp`` (`check_set`: `validator`), ``sched/sched_send.cpp``
(homogeneous redundancy, adaptive replication). As in BOINC

- a limit is broken when it is *exceeded* (errors, successes without a quorum) or when one
  more result is needed and the total is used up;
- a host that does not answer in time uses up the total and is no error;
- a result that comes late counts while there is something to compare it with
  (`actions_after_end`);
- one more result is wanted than disagree.

What differs is meant as a kindness or is stricter, never silently:

- results go to distinct users *and* hosts, whatever became of the earlier ones;
- what is *turned away*, refused by a volunteer's opt-in or aborted, is neither an error
  nor in the total, but capped; newcomers may do half of it;
- no result is issued whose deadline exceeds the admission's end;
- each result is looked at by itself as soon as it is there, not with the quorum only;
- with the total used up, results that are still out may complete a quorum before it ends;
- all of `min_quorum` must agree, not a majority of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.embedded.db.records import (
    Check,
    CheckVerdict,
    Close,
    Compare,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    ReleaseClass,
    SecondOpinion,
    Validity,
    still_counts,
)
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress
from stoilo.server.engines.questions import refusal_cap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoilo.core.types import Redundancy
    from stoilo.server.engines.embedded.db.records import (
        Action,
        Caller,
        Result,
        WorkunitView,
    )


# As in BOINC a host that is still working when a quorum is found may finish: its result is
# compared with the canonical one, for credit and for the host's history, and the files stay
# until the last such result is back or past its deadline. The outcome never changes: nothing
# is compared before the server has taken it. After any other end nothing is compared and
# every result is dropped (BOINC's ``NO_CHECK``).
#
# A re-check (a result for trusted hosts only) is the one result that is handed out after the
# end. Where it differs from the canonical result, others are asked for a second opinion, one
# after the other, until one has given it. What is left of the others then is dropped, or,
# where a host has it already, compared like any late result.
# Second opinions asked for, one after the other, until one comes
MOST_OPINIONS: Final = 3


def actions_after_end(view: WorkunitView, now: int) -> list[Action]:
    """Return what is to be done now for a workunit with an outcome, in order."""
    if not view.lingering:
        return [Drop(result.name) for result in view.results if _is_open(result)]
    needless = [result for result in view.results if _is_needless(view, result, now)]
    if needless or not view.delivered:
        return [Drop(result.name) for result in needless]
    expired = [result for result in view.results if is_expired(result, now)]
    if expired:
        return [Expire(result.name) for result in expired]
    if now > view.not_after:
        return [Close()]
    return (
        [Check(result.name) for result in view.results if result.unchecked]
        or [Compare(result.name) for result in view.results if result.undecided]
        or ([SecondOpinion()] if _wants_opinion(view, now) else [])
        or ([] if has_stragglers(view) else [Close()])
    )


def _wants_opinion(view: WorkunitView, now: int) -> bool:
    """Say whether a re-check differed, nobody else has said what it is, and may yet."""
    if not view.doubt or now + view.redundancy.delay_bound_s > view.not_after:
        return False
    doubted = CheckVerdict.DOUBTED
    others = [one for one in view.results if one.recheck and one.recheck is not doubted]
    return len(others) < MOST_OPINIONS and not any(_may_answer(one) for one in others)


def _may_answer(result: Result) -> bool:
    """Say whether a re-check has given an answer, or may still give one."""
    return (
        result.state is not ResultProgress.OVER
        or result.outcome is ResultOutcome.SUCCESS
    )


def has_stragglers(view: WorkunitView) -> bool:
    """Say whether a result may still come back, be sent or be compared."""
    return any(
        result.state is ResultProgress.IN_PROGRESS
        or result.undecided
        or (result.recheck and result.state is ResultProgress.UNSENT)
        for result in view.results
    )


def is_expired(result: Result, now: int) -> bool:
    """Say whether a result's host should have answered before now."""
    return result.state is ResultProgress.IN_PROGRESS and result.deadline < now


def _is_open(result: Result) -> bool:
    return result.state is not ResultProgress.OVER


def _is_needless(view: WorkunitView, result: Result, now: int) -> bool:
    """Say whether an unsent result is for nobody, or can be issued to nobody."""
    over = now + view.redundancy.delay_bound_s > view.not_after
    wanted = result.recheck and not result.answered
    return result.state is ResultProgress.UNSENT and (over or not wanted)


# How long after the admission a result waits for a validator that does not answer, s
ANSWER_GRACE_S: Final = 86_400
ERROR_OUTCOMES = frozenset({ResultOutcome.CLIENT_ERROR, ResultOutcome.INVALID})
MAY_RETURN = frozenset(
    {ResultOutcome.NONE, ResultOutcome.NO_REPLY, ResultOutcome.SUCCESS}
)
TURNED_AWAY = frozenset({ResultOutcome.REFUSED, ResultOutcome.ABORTED})


@dataclass(frozen=True, slots=True)
class _Counts:
    """Results of a workunit by what they are."""

    unsent: int
    in_progress: int
    success: int
    errors: int
    turned_away: int
    total: int
    viable: int
    unchecked: int
    unjudged: int


def _count(results: Iterable[Result]) -> _Counts:
    """Count results as BOINC does; those turned away or never sent are in no total."""
    every = tuple(results)
    success = [
        result
        for result in every
        if result.outcome is ResultOutcome.SUCCESS
        and result.validity is not Validity.INVALID
    ]
    aside = {*TURNED_AWAY, ResultOutcome.NOT_NEEDED}
    return _Counts(
        unsent=sum(result.state is ResultProgress.UNSENT for result in every),
        in_progress=sum(result.state is ResultProgress.IN_PROGRESS for result in every),
        success=len(success),
        errors=sum(result.outcome in ERROR_OUTCOMES for result in every),
        turned_away=sum(result.outcome in TURNED_AWAY for result in every),
        total=sum(result.outcome not in aside for result in every),
        viable=sum(result.viable for result in every),
        unchecked=sum(result.validity is Validity.INIT for result in success),
        unjudged=sum(result.validity is Validity.CHECKED for result in success),
    )


def is_left_to_others(view: WorkunitView) -> bool:
    """Say whether so much was turned away that newcomers get no result any more.

    What they turn away can then not end the workunit.
    """
    turned_away = sum(result.outcome in TURNED_AWAY for result in view.results)
    return turned_away >= refusal_cap(view.redundancy.max_total) // 2


def deadline_of(redundancy: Redundancy, now: int) -> int:
    """Return the deadline, s, of a result issued at `now`."""
    return now + redundancy.delay_bound_s


def may_issue(view: WorkunitView, caller: Caller, now: int) -> bool:
    """Say whether a result may go to this host now.

    Distinct users and hosts hold over every result ever sent, whatever became of it.
    """
    if caller.newcomer and is_left_to_others(view):
        return False
    return view.outcome is None and _may_hold(view, caller, now)


def may_recheck(view: WorkunitView, caller: Caller, now: int) -> bool:
    """Say whether a re-check of an ended workunit may go to this host now."""
    allowed = caller.trusted_account or any(
        result.recheck is CheckVerdict.OPEN and result.state is ResultProgress.UNSENT
        for result in view.results
    )
    return view.lingering and allowed and _may_hold(view, caller, now)


def can_receive(view: WorkunitView, result: Result) -> bool:
    """Say whether a report or upload for `result` still counts.

    A late result counts while the workunit has no outcome, or still has its canonical
    result to compare with (as BOINC does).
    """
    wanted = view.outcome is None or view.lingering
    return wanted and still_counts(result.state, result.outcome)


def next_actions(view: WorkunitView, now: int) -> list[Action]:
    """Return what is to be done now, in order; empty when there is only waiting.

    After doing them the caller asks again until the list is empty. Checks and
    judgements come before limits: a quorum that is there wins over an error beside it. A
    validator that gives no answer is not asked for ever: every workunit ends.
    """
    if view.outcome is not None:
        return actions_after_end(view, now)
    counts = _count(view.results)
    return (
        _expiries(view, now)
        or _ask_or_give_up(view, counts, now)
        or _releases(view)
        or _limits(view, counts, now)
    )


def _ask_or_give_up(view: WorkunitView, counts: _Counts, now: int) -> list[Action]:
    """Return what the validator has to look at, or the end where it was asked too long."""
    checks = _checks(view, counts)
    if checks and now > view.not_after + ANSWER_GRACE_S:
        return [Finish(OutcomeKind.ADMISSION_ENDED)]
    return checks


def next_transition(view: WorkunitView, now: int) -> int:
    """Return when time alone will next matter, s; far future when it never does."""
    times = [
        result.deadline + 1
        for result in view.results
        if result.state is ResultProgress.IN_PROGRESS
    ]
    last_issue = view.not_after - view.redundancy.delay_bound_s + 1
    if view.outcome is None:
        if last_issue > now:
            times.append(last_issue)
        return max(now, min(times, default=now))
    if not view.lingering:
        return 2**62
    if any(result.state is ResultProgress.UNSENT for result in view.results):
        times.append(last_issue)
    return min([*times, view.not_after + 1])


def _may_hold(view: WorkunitView, caller: Caller, now: int) -> bool:
    if _admission_over(view, now) or not _same_class(view, caller):
        return False
    machine = {caller.host_key, caller.cpid or caller.host_key}
    return all(
        result.user_id == 0
        or (result.user_id != caller.user_id and result.host_key not in machine)
        for result in view.results
    )


def _same_class(view: WorkunitView, caller: Caller) -> bool:
    """Say whether the host is as alike as the workunit asks; an unknown one never is."""
    if not view.homogeneous:
        return True
    own = caller.class_for(view.homogeneous)
    return bool(own) and view.host_class in {"", own}


def _expiries(view: WorkunitView, now: int) -> list[Action]:
    return [Expire(result.name) for result in view.results if is_expired(result, now)]


def _checks(view: WorkunitView, counts: _Counts) -> list[Action]:
    """Return what the validator has to look at: single results first, then the set."""
    if counts.unchecked:
        return [Check(result.name) for result in view.results if result.unchecked]
    quorum = view.in_force.min_quorum
    if counts.unjudged and counts.viable >= quorum:
        viable = tuple(result.name for result in view.results if result.viable)
        return [Judge(viable if quorum > 1 else viable[:1])]
    return []


def _releases(view: WorkunitView) -> list[Action]:
    committed = bool(view.homogeneous and view.host_class)
    sent = [result for result in view.results if result.user_id]
    alive = any(
        result.outcome in MAY_RETURN and result.validity is not Validity.INVALID
        for result in sent
    )
    return [ReleaseClass()] if committed and not alive else []


def _limits(view: WorkunitView, counts: _Counts, now: int) -> list[Action]:
    broken = _broken_limit(view.in_force, counts)
    if broken is not None:
        return [Finish(broken)]
    if _admission_over(view, now):
        return _wind_down(view, counts)
    return _top_up(view.in_force, counts)


def _admission_over(view: WorkunitView, now: int) -> bool:
    return deadline_of(view.redundancy, now) > view.not_after


def _target(redundancy: Redundancy, counts: _Counts) -> int:
    """Return how many results are wanted; one more than disagree, once they do."""
    if counts.viable >= redundancy.min_quorum:
        return max(redundancy.target_results, counts.viable + 1)
    return redundancy.target_results


def _needed(redundancy: Redundancy, counts: _Counts) -> int:
    have = counts.unsent + counts.in_progress + counts.success
    return max(0, _target(redundancy, counts) - have)


def _broken_limit(redundancy: Redundancy, counts: _Counts) -> OutcomeKind | None:
    if counts.errors > redundancy.max_error:
        return OutcomeKind.TOO_MANY_ERRORS
    if counts.viable > redundancy.max_success:
        return OutcomeKind.TOO_MANY_SUCCESS
    if counts.turned_away > refusal_cap(redundancy.max_total):
        return OutcomeKind.TOO_MANY_REFUSALS
    if _needed(redundancy, counts) and counts.total >= redundancy.max_total:
        open_results = counts.unsent + counts.in_progress
        hopeless = counts.success + open_results < redundancy.min_quorum
        if hopeless or not open_results:
            return OutcomeKind.TOO_MANY_TOTAL
    return None


def _wind_down(view: WorkunitView, counts: _Counts) -> list[Action]:
    unsent = [
        result for result in view.results if result.state is ResultProgress.UNSENT
    ]
    if unsent:
        return [Drop(result.name) for result in unsent]
    if counts.in_progress:
        return []
    return [Finish(OutcomeKind.ADMISSION_ENDED)]


def _top_up(redundancy: Redundancy, counts: _Counts) -> list[Action]:
    room = redundancy.max_total - counts.total
    count = min(_needed(redundancy, counts), room)
    return [Create(count)] if count > 0 else []
