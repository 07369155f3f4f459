"""What is left to do for a workunit that has its outcome, pure.

As in BOINC a host that is still working when a quorum is found may finish: its result is
compared with the canonical one, for credit and for the host's history, and the files stay
until the last such copy is back or past its deadline. The outcome never changes: nothing
is compared before the server has taken it. After any other end nothing is compared and
every copy is dropped (BOINC's ``NO_CHECK``).

A re-check (a copy for trusted hosts only) is the one copy that is handed out after the
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
from stoilo.server.engines.interface import CopyOutcome, CopyState

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.db.records import Copy, WorkunitView

__all__ = ["actions_after_end", "has_stragglers", "transition_after_end"]

MOST_OPINIONS: Final = 3
"""Second opinions asked for, one after the other, until one comes."""


def actions_after_end(view: WorkunitView, now: int) -> list[Action]:
    """Return what is to be done now for a workunit with an outcome, in order."""
    if not view.lingering:
        return [Drop(copy.name) for copy in view.copies if _is_open(copy)]
    needless = [copy for copy in view.copies if _is_needless(view, copy, now)]
    if needless or not view.delivered:
        return [Drop(copy.name) for copy in needless]
    expired = [copy for copy in view.copies if is_expired(copy, now)]
    if expired:
        return [Expire(copy.name) for copy in expired]
    if now > view.not_after:
        return [Close()]
    return (
        [Check(copy.name) for copy in view.copies if copy.unchecked]
        or [Compare(copy.name) for copy in view.copies if copy.undecided]
        or ([SecondOpinion()] if _wants_opinion(view, now) else [])
        or ([] if has_stragglers(view) else [Close()])
    )


def _wants_opinion(view: WorkunitView, now: int) -> bool:
    """Say whether a re-check differed, nobody else has said what it is, and may yet."""
    if not view.doubt or now + view.redundancy.delay_bound_s > view.not_after:
        return False
    others = [copy for copy in view.copies if copy.recheck and not copy.doubts]
    return len(others) < MOST_OPINIONS and not any(_may_answer(one) for one in others)


def _may_answer(copy: Copy) -> bool:
    """Say whether a re-check has given an answer, or may still give one."""
    return copy.state is not CopyState.OVER or copy.outcome is CopyOutcome.SUCCESS


def has_stragglers(view: WorkunitView) -> bool:
    """Say whether a copy may still come back, be sent or be compared."""
    return any(
        copy.state is CopyState.IN_PROGRESS
        or copy.undecided
        or (copy.recheck and copy.state is CopyState.UNSENT)
        for copy in view.copies
    )


def transition_after_end(view: WorkunitView) -> int:
    """Return when time alone will next matter, s; far future when it never does."""
    if not view.lingering:
        return 2**62
    times = [
        copy.deadline + 1 for copy in view.copies if copy.state is CopyState.IN_PROGRESS
    ]
    if any(copy.state is CopyState.UNSENT for copy in view.copies):
        times.append(view.not_after - view.redundancy.delay_bound_s + 1)
    return min([*times, view.not_after + 1])


def is_expired(copy: Copy, now: int) -> bool:
    """Say whether a copy's host should have answered before now."""
    return copy.state is CopyState.IN_PROGRESS and copy.deadline < now


def _is_open(copy: Copy) -> bool:
    """Say whether the copy waits for a host or is on one."""
    return copy.state is not CopyState.OVER


def _is_needless(view: WorkunitView, copy: Copy, now: int) -> bool:
    """Say whether an unsent copy is for nobody, or can be issued to nobody."""
    over = now + view.redundancy.delay_bound_s > view.not_after
    wanted = copy.recheck and not copy.answered
    return copy.state is CopyState.UNSENT and (over or not wanted)
