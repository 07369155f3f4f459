from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.core.types import TaskState
from stoilo.server.db.records import (
    ATTEMPT_TRANSITIONS,
    TASK_TRANSITIONS,
    AttemptState,
    advance_attempt,
    advance_task,
    needs_new_attempt,
)


@given(st.sampled_from([s for s in TaskState if s.final]), st.sampled_from(TaskState))
def test_final_task_never_moves(current: TaskState, target: TaskState) -> None:
    with pytest.raises(InternalError, match="STO-R034"):
        advance_task(current, target)


@given(st.lists(st.sampled_from(TaskState), max_size=20))
def test_any_walk_reaches_at_most_one_final_state(walk: list[TaskState]) -> None:
    state, finals = TaskState.ADMITTING, 0
    for target in walk:
        if target in TASK_TRANSITIONS[state]:
            state = advance_task(state, target)
            finals += state.final
    assert finals <= 1


@pytest.mark.parametrize("state", [s for s in AttemptState if s.open])
def test_open_attempt_has_one_way_on_and_one_way_out(state: AttemptState) -> None:
    ways = ATTEMPT_TRANSITIONS[state] - {AttemptState.PARKED}
    assert len(ways) == 2
    assert AttemptState.CLOSED in ways


def test_only_what_is_not_sealed_yet_can_be_parked() -> None:
    """A statement that is fixed never gains a review."""
    into = {state for state, ways in ATTEMPT_TRANSITIONS.items() if "parked" in ways}
    assert into == {AttemptState.CREATED}
    assert AttemptState.SEALED not in ATTEMPT_TRANSITIONS[AttemptState.PARKED]


def test_attempt_cannot_skip_the_log() -> None:
    with pytest.raises(InternalError, match="STO-R034"):
        advance_attempt(AttemptState.SEALED, AttemptState.SIGNED)


def test_copy_that_would_outlive_its_admission_needs_a_new_attempt() -> None:
    assert not needs_new_attempt(now=100, delay_bound_s=50, not_after=150)
    assert needs_new_attempt(now=101, delay_bound_s=50, not_after=150)
