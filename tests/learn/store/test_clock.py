"""BSP, SSP and ASP: leads, death and return, repetition."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.core.states import State
from stoilo.learn.store.clock import VectorClock

WORKERS = [f"w{index}" for index in range(5)]


def clock_of(limit, workers=WORKERS):
    clock = VectorClock(limit)
    clock.join(workers)
    return clock


def commit_next(clock, worker):
    return clock.commit(worker, clock.clocks[worker])


def run_at_random(clock, seed, steps=400):
    """Commit whatever may start, one worker being three times slower than the others."""
    chance = random.Random(seed)
    leads = []
    for _ in range(steps):
        worker = chance.choice([*WORKERS[1:] * 3, WORKERS[0]])
        if clock.may_start(worker):
            commit_next(clock, worker)
        leads.append(clock.lead)
    return leads


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_lead_under_random_delays_never_exceeds_the_limit_and_one(limit):
    leads = [
        lead for seed in range(20) for lead in run_at_random(clock_of(limit), seed)
    ]
    assert max(leads) == limit + 1


@pytest.mark.parametrize("limit", [None, 10**9])
def test_control_without_a_limit_the_lead_grows(limit):
    assert max(run_at_random(clock_of(limit), 0)) > 20


@given(
    st.sampled_from([0, 1, 3, 8]),
    st.lists(
        st.tuples(st.sampled_from(WORKERS), st.sampled_from("ccccclj")), max_size=200
    ),
)
def test_lead_holds_and_time_never_goes_back_under_death_and_return(limit, events):
    clock = clock_of(limit)
    for worker, event in events:
        before = clock.time
        if event == "l":
            clock.leave(worker)
        elif event == "j":
            clock.join([worker])
        elif clock.may_start(worker):
            commit_next(clock, worker)
        assert clock.time >= before
        assert clock.lead <= limit + 1


def test_fastest_waits_until_the_slowest_is_near_enough():
    clock = clock_of(1, ["fast", "slow"])
    for _ in range(2):
        commit_next(clock, "fast")
    assert not clock.may_start("fast")
    commit_next(clock, "slow")
    assert clock.may_start("fast")


def test_repeated_commit_changes_nothing():
    clock = clock_of(3)
    assert clock.commit("w0", 0)
    assert not clock.commit("w0", 0)
    assert clock.clocks["w0"] == 1


def test_commit_with_a_gap_is_refused():
    with pytest.raises(UsageError, match="STO-T063"):
        clock_of(3).commit("w0", 1)


def test_worker_that_left_is_not_waited_for_and_its_commit_is_void():
    clock = clock_of(0, ["a", "b"])
    commit_next(clock, "a")
    assert not clock.may_start("a")
    clock.leave("b")
    assert clock.may_start("a")
    assert not clock.commit("b", 0)


def test_worker_that_returns_goes_on_at_the_servers_time():
    clock = clock_of(0, ["a", "b"])
    clock.leave("b")
    for _ in range(7):
        commit_next(clock, "a")
    clock.join(["b"])
    assert clock.clocks["b"] == clock.time == 7


def test_joining_again_moves_nobody():
    clock = clock_of(None)
    commit_next(clock, "w0")
    clock.join(WORKERS)
    assert clock.clocks["w0"] == 1


def test_final_read_waits_for_the_last_to_finish():
    clock = clock_of(3, ["a", "b"])
    for _ in range(3):
        commit_next(clock, "a")
    clock.finish("a")
    assert clock.time == 0
    for _ in range(3):
        commit_next(clock, "b")
    clock.finish("b")
    assert clock.time == 3


def test_worker_that_is_unknown_starts_nothing_and_has_no_clock():
    clock = VectorClock(0)
    assert not clock.may_start("x")
    with pytest.raises(UsageError, match="STO-T063"):
        clock.clock_of("x")


def test_negative_limit_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        VectorClock(-1)


@given(st.sampled_from([None, 0, 3]), st.integers(0, 100))
def test_saved_clock_goes_on_as_the_first_would(limit, seed):
    clock = clock_of(limit)
    run_at_random(clock, seed, 30)
    again = VectorClock()
    again.load(clock.save())
    assert again == clock
    assert run_at_random(again, 1, 30) == run_at_random(clock, 1, 30)


def test_saved_clock_of_a_wrong_form_is_refused():
    with pytest.raises(UsageError, match="STO-T012"):
        VectorClock().load(State({}, {**VectorClock().save().plain, "time": "x"}))


def test_silent_worker_is_taken_out_when_its_lease_ends():
    clock = clock_of(0, ["a", "b"])
    clock.lease_s = 10.0
    for worker in ("a", "b"):
        clock.renew(worker, 0.0)
    commit_next(clock, "a")
    clock.renew("a", 5.0)
    assert clock.expired(9.9) == ()
    assert clock.expired(10.0) == ("b",)
    clock.leave("b")
    assert clock.may_start("a")
