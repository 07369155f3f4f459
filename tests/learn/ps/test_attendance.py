"""Leases at work: who is silent is not waited for, is asked again, and comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.learn.ps.attendance import Attendance
from stoilo.learn.ps.clock import VectorClock
from stoilo.learn.ps.leases import Leases

WORKERS = ["w0", "w1", "w2", "w3"]
LEASE_S = 10.0


def attendance(limit=0, total=50, lease_s=LEASE_S):
    clock = VectorClock(limit)
    clock.join(WORKERS)
    found = Attendance(clock, total, None if lease_s is None else Leases(lease_s))
    found.note_time(0.0)
    return found


def draw(found, room=9):
    return found.draw(room, WORKERS)


def answer_all(found, drawn, but=()):
    for worker, iteration in drawn:
        if worker not in but:
            assert found.answer(worker, iteration)
            found.commit(worker, iteration)


def one_silent():
    """A BSP round in which w0 says nothing until its lease has ended."""
    found = attendance()
    answer_all(found, draw(found), but=["w0"])
    found.note_time(LEASE_S)
    return found


def test_control_without_leases_all_wait_for_the_silent_one_for_ever():
    found = attendance(lease_s=None)
    answer_all(found, draw(found), but=["w0"])
    found.note_time(1e9)
    assert draw(found) == []


def test_work_goes_on_without_the_silent_one_and_its_iteration_is_given_again():
    found = one_silent()
    assert draw(found) == [("w1", 1), ("w2", 1), ("w3", 1), ("w0", 0)]


def test_silent_one_is_given_out_once_more_and_not_again():
    found = one_silent()
    answer_all(found, draw(found), but=["w0"])
    found.note_time(2 * LEASE_S)
    assert "w0" not in dict(draw(found))
    found.lose("w0", 0)
    assert ("w0", 0) in draw(found)


def test_answer_before_the_others_went_on_still_counts():
    found = attendance(limit=3)
    draw(found, room=1)
    found.note_time(LEASE_S)
    assert found.gone == {"w0": 0}
    assert found.answer("w0", 0)
    found.commit("w0", 0)
    assert found.clock.clocks["w0"] == 1
    assert found.missed == 0


def test_late_answer_brings_the_worker_back_at_the_servers_time():
    found = one_silent()
    for _ in range(3):
        answer_all(found, draw(found), but=["w0"])
    assert not found.answer("w0", 0)
    assert found.clock.clocks["w0"] == found.clock.time == 4
    assert found.missed == 4
    assert ("w0", 4) in draw(found)


def test_late_answer_after_the_end_finishes_the_worker():
    found = attendance(total=2)
    answer_all(found, draw(found), but=["w0"])
    found.note_time(LEASE_S)
    answer_all(found, draw(found), but=["w0"])
    assert not found.clock.clocks, "all that live have finished"
    assert not found.answer("w0", 0)
    assert not found.clock.clocks


def test_when_nobody_is_heard_of_all_are_given_again_and_nobody_leaves():
    found = attendance()
    drawn = draw(found)
    found.note_time(LEASE_S)
    assert draw(found) == drawn
    assert found.gone == {}


def test_answer_in_time_ends_the_lease():
    found = attendance(limit=None)
    answer_all(found, draw(found))
    found.note_time(5 * LEASE_S)
    assert found.gone == {}
    assert found.next_alarm() is None


def test_next_alarm_is_the_end_of_the_first_lease():
    found = attendance()
    draw(found, room=1)
    found.note_time(4.0)
    draw(found)
    assert found.next_alarm() == LEASE_S


def test_saved_and_loaded_the_leases_begin_anew():
    found = one_silent()
    draw(found)
    again = attendance()
    again.load(found.save())
    again.note_time(100.0)
    assert (again.clock, again.out, again.gone) == (found.clock, found.out, found.gone)
    assert again.next_alarm() == 100.0 + LEASE_S


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
@given(chances=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=250))
def test_lead_stays_within_the_limit_and_one_under_death_and_return(limit, chances):
    found, flying, now = attendance(limit, total=12), [], 0.0
    for kind, index in chances:
        before = found.clock.time
        flying += draw(found, room=2)
        if kind == 0:
            now += LEASE_S / 2
            found.note_time(now)
        elif flying:
            worker, iteration = flying.pop(index % len(flying))
            if kind == 1:
                found.lose(worker, iteration)
            elif found.answer(worker, iteration):
                found.commit(worker, iteration)
        assert found.clock.lead <= limit + 1
        assert found.clock.time >= before
