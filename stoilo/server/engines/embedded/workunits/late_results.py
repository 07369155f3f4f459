"""What is left to do for a workunit that has its outcome, pure.

As in BOINC a host that is still working when a quorum is found may finish: its result is
compared with the canonical one, for credit and for the host's history, and the files stay
until the last such result is back or past its deadline. The outcome never changes: nothing
is compared before the server has taken it. After any other end nothing is compared and
every result is dropped (BOINC's ``NO_CHECK``).

A re-check (a result for trusted hosts only) is the one result that is handed out after the
end. Where it differs from the canonical result, others are asked for a second opinion, one
after the other, until one has given it. What is left of the others then is dropped, or,
where a host has it already, compared like any late result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.server.engines.embedded.db.records import (
    Action,
    Check,
    Close,
    Compare,
    Drop,
    Expire,
    SecondOpinion,
)
from stoilo.server.engines.interface import ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.db.records import Result, WorkunitView

__all__ = ["actions_after_end", "has_stragglers", "transition_after_end"]

MOST_OPINIONS: Final = 3
"""Second opinions asked for, one after the other, until one comes."""


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
    others = [result for result in view.results if result.recheck and not result.doubts]
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


def transition_after_end(view: WorkunitView) -> int:
    """Return when time alone will next matter, s; far future when it never does."""
    if not view.lingering:
        return 2**62
    times = [
        result.deadline + 1
        for result in view.results
        if result.state is ResultProgress.IN_PROGRESS
    ]
    if any(result.state is ResultProgress.UNSENT for result in view.results):
        times.append(view.not_after - view.redundancy.delay_bound_s + 1)
    return min([*times, view.not_after + 1])


def is_expired(result: Result, now: int) -> bool:
    """Say whether a result's host should have answered before now."""
    return result.state is ResultProgress.IN_PROGRESS and result.deadline < now


def _is_open(result: Result) -> bool:
    """Say whether the result waits for a host or is on one."""
    return result.state is not ResultProgress.OVER


def _is_needless(view: WorkunitView, result: Result, now: int) -> bool:
    """Say whether an unsent result is for nobody, or can be issued to nobody."""
    over = now + view.redundancy.delay_bound_s > view.not_after
    wanted = result.recheck and not result.answered
    return result.state is ResultProgress.UNSENT and (over or not wanted)
