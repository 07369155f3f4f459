"""Orders of pipelines: how busy they keep members, and what holds of each of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.cells.schedules import (
    SCHEDULES,
    Op,
    Places,
    input_versions,
    leave_out,
    order_all,
    span_of,
    versions_met,
)
from stoilo.learn.cells.timeline import measure_utilisation
from tests.support.simulatedpipeline import most_in_flight, simulate

PLACES = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(
    lambda widths: Places(tuple(widths))
)
EVERY = {
    "schedule": st.sampled_from(SCHEDULES),
    "places": PLACES,
    "batches": st.integers(0, 40),
    "flush": st.integers(0, 9),
}


def busy(schedule: str, stages: int, flush: int = 0) -> float:
    places = Places((1,) * stages)
    return measure_utilisation(simulate(order_all(schedule, places, 64, flush), places))


@pytest.mark.parametrize(("stages", "share"), [(2, 0.985), (4, 0.955), (8, 0.901)])
def test_without_flush_only_the_ends_are_idle(stages: int, share: float):
    assert busy("1f1b", stages) == pytest.approx(share, abs=0.002)
    assert busy("1f1b", stages) == pytest.approx(64 / (64 + stages - 1))


@pytest.mark.parametrize(("stages", "share"), [(2, 0.5), (4, 0.25), (8, 0.125)])
def test_one_batch_at_a_time_keeps_one_stage_busy(stages: int, share: float):
    assert busy("naive", stages) == pytest.approx(share)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "share"), [(2, 0.667), (4, 0.571), (8, 0.533)])
def test_a_flush_of_as_many_as_stages_idles_almost_half(
    stages: int, share: float, schedule: str
):
    assert busy(schedule, stages, stages) == pytest.approx(share, abs=0.001)


def test_more_micro_batches_a_flush_idle_less():
    shares = [busy("1f1b", 4, flush) for flush in (4, 8, 16, 64)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(busy("1f1b", 4))


def test_stages_keep_as_many_batches_as_are_behind_them():
    orders = order_all("1f1b", Places((1,) * 4), 64)
    assert [most_in_flight(ops) for ops in orders] == [4, 3, 2, 1]


def test_gpipe_keeps_all_of_a_flush():
    orders = order_all("gpipe", Places((1, 1)), 8, 4)
    assert [most_in_flight(ops) for ops in orders] == [4, 4]


@pytest.mark.parametrize(
    ("widths", "depths"), [((2, 1, 1), [2, 2, 1]), ((7, 1), [2, 1]), ((1, 3), [4, 1])]
)
def test_depth_of_replicas_is_rounded_up(widths: tuple[int, ...], depths: list[int]):
    places = Places(widths)
    assert [places.depth(stage) for stage in range(len(widths))] == depths


@given(**EVERY)
def test_every_batch_passes_every_stage_once_in_one_order(
    schedule: str, places: Places, batches: int, flush: int
):
    orders = order_all(schedule, places, batches, flush)
    for rank, ops in enumerate(orders):
        stage, replica = places.find(rank)
        mine = list(range(replica, batches, places.replicas[stage]))
        for kind in "FB":
            assert [op.number for op in ops if op.kind == kind] == mine
        assert all(places.rank(stage, batch) == rank for batch in mine)


@given(**EVERY)
def test_backward_comes_after_forward_and_updates_after_their_batches(
    schedule: str, places: Places, batches: int, flush: int
):
    for rank, ops in enumerate(order_all(schedule, places, batches, flush)):
        span = span_of(places, places.find(rank)[0], flush)
        place = {op: index for index, op in enumerate(ops)}
        for op in ops:
            if op.kind == "B":
                assert place["F", op.number] < place[op]
                assert place[op] < place["U", op.number // span]
        updates = [op.number for op in ops if op.kind == "U"]
        assert updates == list(range(-(-batches // span)))


@given(**EVERY)
def test_nobody_waits_for_ever(schedule: str, places: Places, batches: int, flush: int):
    orders = order_all(schedule, places, batches, flush)
    spans = simulate(orders, places)
    assert sum(one.kind in "FB" for one in spans) == 2 * batches * len(places.replicas)


@given(**EVERY)
def test_no_more_than_the_depth_is_in_flight(
    schedule: str, places: Places, batches: int, flush: int
):
    orders = order_all(schedule, places, batches, flush)
    for rank, ops in enumerate(orders):
        stage = places.find(rank)[0]
        if schedule != "gpipe":
            assert most_in_flight(ops) <= places.depth(stage)
            assert places.depth(stage) <= places.members - sum(places.replicas[:stage])


@given(places=PLACES, batches=st.integers(1, 40), done=st.integers(0, 20))
def test_what_is_left_after_a_common_batch_runs_too(
    places: Places, batches: int, done: int
):
    once = 12  # every span up to 4 divides it
    orders = order_all("1f1b", places, batches)
    left = [
        leave_out(ops, done * once, span_of(places, places.find(rank)[0], 0))
        for rank, ops in enumerate(orders)
    ]
    numbers = {op.number for ops in left for op in ops if op.kind == "F"}
    assert numbers == set(range(done * once, batches))
    simulate(left, places)


def test_members_that_wait_for_each_other_are_found():
    orders = [(Op("B", 0), Op("F", 0)), (Op("F", 0), Op("B", 0))]
    with pytest.raises(UsageError, match="STO-T040"):
        simulate(orders, Places((1, 1)))


def test_versions_lag_by_the_stages_behind():
    places = Places((1,) * 4)
    for stage, ops in enumerate(order_all("1f1b", places, 10)):
        lag = 3 - stage
        assert versions_met(ops) == {b: max(b - lag, 0) for b in range(10)}


def test_vertical_sync_uses_the_first_stages_versions_everywhere():
    places = Places((1,) * 3)
    orders = order_all("1f1b", places, 10)
    found = [input_versions(places, stage, orders, 0) for stage in range(3)]
    assert found == [{b: max(b - 2, 0) for b in range(10)}] * 3


@given(places=PLACES, batches=st.integers(1, 30))
def test_vertical_sync_never_asks_for_what_is_not_made_yet(
    places: Places, batches: int
):
    orders = order_all("1f1b", places, batches)
    for rank, ops in enumerate(orders):
        asked = input_versions(places, places.find(rank)[0], orders, 0)
        assert all(asked[batch] <= met for batch, met in versions_met(ops).items())


@pytest.mark.parametrize("widths", [(), (1, 0)])
def test_a_stage_without_members_is_refused(widths: tuple[int, ...]):
    with pytest.raises(UsageError, match="STO-T040"):
        Places(widths)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        order_all("zigzag", Places((1,)), 1)
