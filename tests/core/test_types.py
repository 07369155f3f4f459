"""Redundancy relations and task states."""

import pytest

from stoilo.core.errors import UsageError
from stoilo.core.types import (
    Redundancy,
    RunLimits,
    TaskState,
    check_redundancy,
    lowest_limits,
)


def test_default_redundancy_is_consistent():
    check_redundancy(Redundancy())


@pytest.mark.parametrize(
    ("options", "relation"),
    [
        ({"min_quorum": 0}, "1 <= min_quorum"),
        ({"min_quorum": 3}, "min_quorum <= target_results"),
        ({"target_results": 4}, "target_results <= max_total"),
        ({"max_success": 1}, "min_quorum <= max_success"),
        ({"max_success": 4}, "max_success <= max_total"),
        ({"max_error": 0}, "1 <= max_error"),
        ({"max_error": 4}, "max_error <= max_total"),
        ({"delay_bound_s": 0}, "delay_bound > 0"),
    ],
)
def test_inconsistent_redundancy_names_the_relation(options, relation):
    with pytest.raises(UsageError, match=relation):
        check_redundancy(Redundancy(**options))


def test_five_states_are_final():
    assert sum(state.final for state in TaskState) == 5


def test_lowest_limits_takes_each_minimum():
    low = lowest_limits(RunLimits(cpu_s=1, wall_s=9), RunLimits(cpu_s=9, wall_s=1))
    assert (low.cpu_s, low.wall_s) == (1, 1)
