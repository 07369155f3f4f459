"""The state machine of tasks and attempts: one table, pure, no other place decides.

A task has attempts; an attempt has one admission and one workunit. An attempt advances
through durable steps, so that a killed server knows from the row alone what to do next::

    CREATED ──► SEALED ──► LOGGED ──► SIGNED ──► ISSUED ──► DONE
    row        statement  leaf has   envelope   workunit   outcome
    durable    fixed      an index   + proof    exists     stored

Where the policy wants a review and there is none, CREATED goes to PARKED, and back once
a reviewer has signed. Every open state leaves to CLOSED (cancelled, expired, refused
by the signer or by a reviewer).
"""

from __future__ import annotations

import itertools
from enum import StrEnum

from stoilo.core.errors import InternalError
from stoilo.core.types import TaskState

MAX_ATTEMPTS = 8
"""After so many admissions of one task it is `expired` for good."""


class AttemptState(StrEnum):
    """The last durable step that an attempt has reached."""

    CREATED = "created"
    PARKED = "parked"
    SEALED = "sealed"
    LOGGED = "logged"
    SIGNED = "signed"
    ISSUED = "issued"
    DONE = "done"
    CLOSED = "closed"

    @property
    def open(self) -> bool:
        """Whether something is still to be done for this attempt."""
        return self not in {AttemptState.DONE, AttemptState.CLOSED}


ATTEMPT_ORDER = (
    AttemptState.CREATED,
    AttemptState.SEALED,
    AttemptState.LOGGED,
    AttemptState.SIGNED,
    AttemptState.ISSUED,
    AttemptState.DONE,
)

_FINAL = frozenset(state for state in TaskState if state.final)

TASK_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.ADMITTING: _FINAL | {TaskState.RUNNING, TaskState.WAITING_REVIEW},
    TaskState.WAITING_REVIEW: _FINAL | {TaskState.ADMITTING},
    TaskState.RUNNING: _FINAL | {TaskState.ADMITTING},  # back: a new attempt
    **dict.fromkeys(_FINAL, frozenset()),
}

ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    state: frozenset({following, AttemptState.CLOSED})
    for state, following in itertools.pairwise(ATTEMPT_ORDER)
} | {AttemptState.DONE: frozenset(), AttemptState.CLOSED: frozenset()}
ATTEMPT_TRANSITIONS[AttemptState.CREATED] |= {AttemptState.PARKED}
ATTEMPT_TRANSITIONS[AttemptState.PARKED] = frozenset(
    {AttemptState.CREATED, AttemptState.CLOSED}
)


def advance_task(current: TaskState, target: TaskState) -> TaskState:
    """Return `target`, or raise ``STO-R040`` when the table has no such step."""
    if target not in TASK_TRANSITIONS[current]:
        raise InternalError("STO-R040", f"a task cannot go from {current} to {target}")
    return target


def advance_attempt(current: AttemptState, target: AttemptState) -> AttemptState:
    """Return `target`, or raise ``STO-R040`` when the table has no such step."""
    if target not in ATTEMPT_TRANSITIONS[current]:
        raise InternalError(
            "STO-R040", f"an attempt cannot go from {current} to {target}"
        )
    return target


def needs_new_attempt(*, now: int, delay_bound_s: int, not_after: int) -> bool:
    """Whether a copy issued at `now` (s) would outlive its admission (design §1.4)."""
    return now + delay_bound_s > not_after
