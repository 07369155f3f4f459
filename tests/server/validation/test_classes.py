from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec.skeleton import encode
from stoilo.core.types import RunStatus, TaskState
from stoilo.server.validation.answers import (
    Answer,
    ItemAnswer,
    item_outcome,
    item_outcomes,
    same_items,
)


def value(number: int) -> ItemAnswer:
    return ItemAnswer(RunStatus.OK, value=encode(number))


ERROR = ItemAnswer(RunStatus.USER_ERROR, error_type="ValueError", error_text="no")
KILLED = ItemAnswer(RunStatus.KILLED, code="STO-S011")
answers = st.lists(st.one_of(st.integers(0, 3).map(value), st.just(ERROR)), max_size=8)


def bytes_equal(left: bytes, right: bytes) -> bool:
    return left == right


def test_two_errors_are_the_same_whatever_they_say() -> None:
    other = ItemAnswer(RunStatus.USER_ERROR, error_type="KeyError")
    assert same_items(ERROR, other, bytes_equal)


def test_error_and_value_differ_without_asking_the_comparator() -> None:
    assert not same_items(ERROR, value(1), lambda _a, _b: 1 / 0 == 0)


def test_quorum_of_errors_is_a_user_error() -> None:
    outcome = item_outcome([ERROR, value(1), ERROR], 2, bytes_equal)
    assert (outcome.state, outcome.error_type) == (TaskState.USER_ERROR, "ValueError")


def test_item_without_agreement_is_a_system_error_with_its_code() -> None:
    outcome = item_outcome([value(1), value(2)], 2, bytes_equal)
    assert (outcome.state, outcome.code) == (TaskState.SYSTEM_ERROR, "STO-R052")


def test_killed_items_never_count() -> None:
    outcome = item_outcome([KILLED, KILLED], 2, bytes_equal)
    assert (outcome.state, outcome.code) == (TaskState.SYSTEM_ERROR, "STO-S011")


def test_only_the_disagreeing_item_of_a_map_is_lost() -> None:
    left = Answer((value(1), value(2), ERROR), "")
    right = Answer((value(1), value(3), ERROR), "")
    states = [item.state for item in item_outcomes([left, right], 2, bytes_equal)]
    assert states == [
        TaskState.SUCCEEDED,
        TaskState.SYSTEM_ERROR,
        TaskState.USER_ERROR,
    ]


@given(answers, st.integers(1, 4))
def test_outcome_has_a_quorum_behind_it(given_: list[ItemAnswer], quorum: int) -> None:
    outcome = item_outcome(given_, quorum, bytes_equal)
    counts = [
        sum(same_items(one, other, bytes_equal) for other in given_) for one in given_
    ]
    assert (outcome.state is not TaskState.SYSTEM_ERROR) == (
        max(counts, default=0) >= quorum
    )
