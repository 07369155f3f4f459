"""Sizes of a map's chunks: by computing, whatever is waited; within every bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.client.chunks import (
    CHUNK_BYTES,
    DEFAULT_CPU_S,
    DEFAULT_WALL_S,
    FIRST_ITEMS,
    GROWTH,
    TARGET_S,
    WINDOW,
    ChunkCost,
    ChunkSizer,
    computing_budget_s,
)
from stoilo.core.levels import load_levels
from stoilo.core.types import BOUNDS, Redundancy

SECONDS = st.floats(0, 1e18)
COSTS = st.lists(
    st.builds(
        ChunkCost,
        st.integers(1, BOUNDS.map_items),
        SECONDS,
        SECONDS,
        st.integers(0, 10**9),
        st.integers(0, 10**9),
    ),
    max_size=20,
)


@given(st.integers(1, 10**6), COSTS)
def test_sizes_stay_within_bounds(waiting: int, costs: list[ChunkCost]) -> None:
    sizer = ChunkSizer()
    for cost in costs:
        assert 1 <= sizer.next_size(waiting) <= min(waiting, BOUNDS.map_items)
        sizer.note(cost)


@given(COSTS)
def test_a_chunk_is_no_more_than_its_growth_above_one_that_came_back(
    costs: list[ChunkCost],
) -> None:
    sizer, largest = ChunkSizer(), FIRST_ITEMS
    for cost in costs:
        sizer.note(cost)
        largest = max(largest, cost.items * GROWTH)
        assert sizer.size <= largest


def run(
    sizer: ChunkSizer, chunks: int, start_s: float, item_s: float, wait_s: float
) -> list[int]:
    """Return the sizes of chunks that a host computed one after the other."""
    sizes = []
    for _ in range(chunks):
        size = sizer.next_size(10**9)
        computed = start_s + size * item_s
        sizes.append(size)
        sizer.note(ChunkCost(size, wait_s + computed, computed))
    return sizes


@given(st.floats(0, 3), st.floats(1e-4, 0.5), st.floats(0, 1e5))
def test_chunks_reach_their_time_soon_however_long_they_wait(
    start_s: float, item_s: float, wait_s: float
) -> None:
    sizes = run(ChunkSizer(), 12, start_s, item_s, wait_s)
    computed = start_s + sizes[-1] * item_s
    assert computed <= 2 * TARGET_S + start_s
    assert computed >= TARGET_S / 2 or sizes[-1] == BOUNDS.map_items


def test_waiting_alone_never_makes_chunks_shrink() -> None:
    assert run(ChunkSizer(), 4, 1.0, 1e-6, 600.0)[-1] == BOUNDS.map_items


def test_chunks_whose_calls_take_long_shrink() -> None:
    sizer = ChunkSizer()
    sizer.note(ChunkCost(FIRST_ITEMS, 900.0, 800.0))
    assert sizer.next_size(1000) == 1


def test_without_claims_only_the_time_beyond_the_shortest_trip_counts() -> None:
    sizer = ChunkSizer()
    sizer.note(ChunkCost(8, 600.0))
    assert sizer.size > 8
    sizer.note(ChunkCost(sizer.size, 900.0))
    assert sizer.size < 8 * GROWTH


@given(SECONDS, SECONDS)
def test_claim_beyond_the_trip_counts_as_the_trip(trip: float, more: float) -> None:
    cost = ChunkCost(8, trip, trip + more)
    assert cost.computing_s(0.0) <= trip


@given(st.floats(0.1, 100), st.integers(1, 1000))
def test_growing_stays_within_the_budget(budget_s: float, permille: int) -> None:
    sizer = ChunkSizer(None, budget_s)
    took = budget_s * permille / 1000
    sizer.note(ChunkCost(8, 1e6, took))
    assert sizer.size <= 8 or sizer.size * took / 8 <= budget_s * (1 + 1e-9)


def test_large_arguments_and_answers_bound_a_chunk() -> None:
    sizer = ChunkSizer()
    assert sizer.fitting(8, CHUNK_BYTES) == 8
    assert sizer.fitting(8, 4 * CHUNK_BYTES) == 2
    grown = ChunkSizer()
    grown.note(ChunkCost(8, 1.0, 0.1, answer_bytes=CHUNK_BYTES // 4))
    assert grown.size == 32


def test_chosen_size_stays() -> None:
    sizer = ChunkSizer(7)
    sizer.note(ChunkCost(7, 900.0, 900.0))
    sizer.halve(7)
    assert (sizer.next_size(100), sizer.fitting(7, 10**9)) == (7, 7)


def test_the_last_items_are_shared_among_the_chunks_in_flight() -> None:
    sizer = ChunkSizer()
    sizer.note(ChunkCost(8, 30.0, 0.8))
    assert sizer.size == 80
    assert sizer.next_size(WINDOW * 50) == 50


def test_items_that_take_no_time_are_not_shared_out() -> None:
    sizer = ChunkSizer()
    run(sizer, 4, 0.3, 1e-6, 20.0)
    assert sizer.next_size(3000) == 3000


def test_budget_is_half_the_limit_and_a_share_of_the_deadline() -> None:
    assert computing_budget_s(Redundancy(delay_bound_s=3000), 0, 0) == 30.0
    assert computing_budget_s(Redundancy(delay_bound_s=3000), 10, 0) == 5.0
    assert computing_budget_s(Redundancy(delay_bound_s=100), 0, 0) == 10.0


def test_assumed_limits_are_the_least_of_the_levels() -> None:
    defaults = [level.default_limits() for level in load_levels()]
    assert min(limits.cpu_s for limits in defaults) == DEFAULT_CPU_S
    assert min(limits.wall_s for limits in defaults) == DEFAULT_WALL_S
