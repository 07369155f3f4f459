from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.client.options import CLASSIC, TRIVIAL, CreateOptions
from stoilo.core.errors import UsageError
from stoilo.core.types import Redundancy

# quorum, target, error, total, success, delay
WORKED = [
    ({}, (2, 2, 1, 3, 3, 300)),
    ({"min_quorum": 1}, (1, 1, 2, 3, 3, 300)),
    ({"min_quorum": 3}, (3, 3, 2, 4, 4, 300)),
    ({"min_quorum": 4}, (4, 4, 2, 5, 5, 300)),
    ({"min_quorum": 8}, (8, 8, 4, 9, 9, 300)),
    ({"min_quorum": 3, "max_total_results": 5}, (3, 3, 3, 5, 5, 300)),
    ({"min_quorum": 2, "target_nresults": 6}, (2, 6, 4, 6, 6, 300)),
    ({"min_quorum": 2, "max_total_results": 2}, (2, 2, 1, 2, 2, 300)),
    ({"max_success_results": 2, "delay_bound": 60}, (2, 2, 1, 3, 2, 60)),
    ({"max_error_results": 3}, (2, 2, 3, 3, 3, 300)),
]

REFUSED = [
    ({"min_quorum": 0}, "1 <= min_quorum"),
    ({"min_quorum": -1}, "1 <= min_quorum"),
    ({"min_quorum": 3, "target_nresults": 2}, "min_quorum <= target_results"),
    ({"target_nresults": 4, "max_total_results": 3}, "target_results <= max_total"),
    ({"min_quorum": 4, "max_total_results": 3}, "target_results <= max_total"),
    ({"min_quorum": 3, "max_success_results": 2}, "min_quorum <= max_success"),
    ({"max_success_results": 9}, "max_success <= max_total"),
    ({"max_error_results": 0}, "1 <= max_error"),
    ({"max_error_results": -2}, "1 <= max_error"),
    ({"max_error_results": 4}, "max_error <= max_total"),
    ({"max_total_results": 0}, "target_results <= max_total"),
    ({"max_total_results": 101}, "max_total <= 100"),
    ({"delay_bound": 0}, "delay_bound > 0"),
    ({"delay_bound": -5}, "delay_bound > 0"),
]


@pytest.mark.parametrize(("given_options", "expected"), WORKED)
def test_what_is_missing_is_inferred(
    given_options: dict[str, int], expected: tuple[int, ...]
) -> None:
    assert CreateOptions(**given_options) == Redundancy(*expected)


@pytest.mark.parametrize(("given_options", "relation"), REFUSED)
def test_every_inconsistent_set_is_refused_by_name(
    given_options: dict[str, int], relation: str
) -> None:
    with pytest.raises(UsageError, match="STO-C042") as error:
        CreateOptions(**given_options)
    assert relation in error.value.message


def test_ready_made_sets() -> None:
    assert Redundancy(1, 1, 1, 1, 1, 300) == TRIVIAL
    assert CreateOptions() == CLASSIC


_NUMBER = st.none() | st.integers(-2, 12)


@given(st.tuples(*[_NUMBER] * 6))
def test_whatever_is_accepted_can_end_well(numbers: Any) -> None:
    try:
        made = CreateOptions(*numbers)
    except UsageError as error:
        assert error.code == "STO-C042"
        return
    assert 1 <= made.min_quorum <= made.target_results <= made.max_total <= 100
    assert made.min_quorum <= made.max_success <= made.max_total
    assert 1 <= made.max_error <= made.max_total
    assert made.delay_bound_s > 0


@given(st.integers(1, 99))
def test_a_quorum_alone_is_always_enough(quorum: int) -> None:
    assert CreateOptions(min_quorum=quorum).min_quorum == quorum
