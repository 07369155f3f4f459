from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.limits import RunLimits
from stoilo.server.admission.estimates import (
    FASTEST_CLAIM,
    FASTEST_FLOPS,
    GUESSED_SHARE,
    LEAST_FPOPS,
    MARGIN,
    REFERENCE_FLOPS,
    SAMPLES_KEPT,
    START_S,
    Claim,
    Demand,
    add_sample,
    bounds_of,
    estimate_fpops,
    sample_of,
)

MINUTE = Demand(RunLimits(cpu_s=60, wall_s=120))
LIMIT = st.integers(1, 28_800)
DEMANDS = st.builds(
    Demand,
    st.builds(RunLimits, cpu_s=LIMIT, wall_s=LIMIT, memory_bytes=st.integers(1, 2**40)),
    runs=st.integers(1, 10_000),
    input_bytes=st.integers(0, 2**40),
    unpacked_bytes=st.integers(0, 2**40),
)
CLAIMS = st.lists(st.tuples(st.floats(), st.floats()))
"""Whatever hosts say: negative, infinite, no number at all."""


def samples_from(workunits: list[list[Claim]], demand: Demand) -> list[float]:
    found = [sample_of(copies, demand) for copies in workunits]
    return [sample for sample in found if sample is not None]


@given(DEMANDS, st.lists(CLAIMS), st.lists(CLAIMS))
def test_any_reports_leave_the_estimate_positive_and_far_below_the_bound(
    demand: Demand, source: list[list[Claim]], level: list[list[Claim]]
) -> None:
    known = samples_from(source, demand), samples_from(level, demand)
    estimate = estimate_fpops(demand, *known)
    assert estimate >= LEAST_FPOPS
    assert estimate * MARGIN <= bounds_of(demand).fpops * 1.000001


@given(DEMANDS, st.floats(1e6, FASTEST_FLOPS))
def test_client_of_any_speed_waits_longer_than_our_own_limits(
    demand: Demand, flops: float
) -> None:
    longest = max(demand.limits.wall_s, demand.limits.cpu_s) * demand.runs
    assert bounds_of(demand).fpops / flops >= longest + START_S - 1e-3


@given(DEMANDS, CLAIMS)
def test_sample_is_within_what_the_limits_allow(
    demand: Demand, copies: list[Claim]
) -> None:
    sample = sample_of(copies, demand)
    assert sample is None or 0 < sample <= demand.limits.cpu_s * FASTEST_CLAIM


@given(DEMANDS)
def test_disk_bound_holds_inputs_tree_and_the_result_twice(demand: Demand) -> None:
    bounds = bounds_of(demand)
    needed = demand.input_bytes + demand.unpacked_bytes
    assert bounds.disk_bytes > needed + 2 * demand.limits.result_bytes
    assert bounds.memory_bytes > demand.limits.memory_bytes


def test_unknown_source_of_an_unknown_level_is_guessed_from_its_limit() -> None:
    guess = 60 * GUESSED_SHARE * REFERENCE_FLOPS
    assert estimate_fpops(MINUTE) == guess


def test_own_source_counts_before_its_level() -> None:
    assert estimate_fpops(MINUTE, source=[7e9], level=[9e9]) == 7e9
    assert estimate_fpops(MINUTE, level=[9e9]) == 9e9


def test_map_costs_as_many_runs_as_it_has_items() -> None:
    many = Demand(MINUTE.limits, runs=100)
    sample = sample_of([(50.0, 0.0)], many)
    assert sample == pytest.approx(0.5 * REFERENCE_FLOPS)
    assert estimate_fpops(many, [sample]) == pytest.approx(50 * REFERENCE_FLOPS)


def test_host_twice_as_fast_measures_the_same_work_in_half_the_time() -> None:
    slow = sample_of([(10.0, 2e9)], MINUTE)
    assert sample_of([(5.0, 4e9)], MINUTE) == slow


def test_one_liar_of_two_cannot_raise_the_sample() -> None:
    honest, liar = (2.0, 1e9), (60.0, 1e12)
    assert sample_of([honest, liar], MINUTE) == 2e9


def test_liars_in_a_minority_of_workunits_do_not_move_the_estimate() -> None:
    samples: tuple[float, ...] = ()
    for sample in [2e9, 6e13] * 7 + [2e9]:
        samples = add_sample(samples, sample)
    assert estimate_fpops(MINUTE, samples) == 2e9


def test_source_that_changed_its_cost_is_followed() -> None:
    samples: tuple[float, ...] = (1e9,) * SAMPLES_KEPT
    for _ in range(SAMPLES_KEPT):
        samples = add_sample(samples, 3e9)
    assert estimate_fpops(MINUTE, samples) == 3e9


@pytest.mark.parametrize("cpu_s", [0.0, -1.0, math.nan, math.inf])
def test_time_that_is_none_gives_no_sample(cpu_s: float) -> None:
    assert sample_of([(cpu_s, 0.0)], MINUTE) is None
