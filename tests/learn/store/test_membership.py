"""Leases at work: who is silent is not waited for, is asked again, and comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.learn.store.clock import Attendance, VectorClock

WORKERS = ["w0", "w1", "w2", "w3"]
LEASE_S = 10.0


def attendance(limit=0, total=50, lease_s=LEASE_S):
    clock = VectorClock(limit, lease_s=lease_s)
    clock.join(WORKERS)
    found = Attendance(clock, total)
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


def others_done(total=2, **fields):
    """Everybody but w0, which has been silent from the start, has finished."""
    found = attendance(total=total, **fields)
    answer_all(found, draw(found), but=["w0"])
    found.note_time(LEASE_S)
    for _ in range(total - 1):
        answer_all(found, draw(found), but=["w0"])
    assert not found.clock.clocks, "all that live have finished"
    return found


def test_silent_one_does_what_is_left_of_it_when_all_others_have_finished():
    found = others_done(total=10)
    assert not found.finished
    found.lose("w0", 0)
    for iteration in range(10):
        assert draw(found) == [("w0", iteration)]
        answer_all(found, [("w0", iteration)])
    assert (found.finished, found.missed, found.clock.time) == (True, 0, 10)


def test_late_answer_after_the_others_end_counts():
    found = others_done()
    answer_all(found, [("w0", 0)])
    assert draw(found) == [("w0", 1)]


def test_one_brought_back_is_given_out_again_after_each_lease_and_never_leaves():
    found = others_done()
    found.note_time(20.0)
    for now_s in (30.0, 40.0, 50.0):
        assert draw(found) == []
        found.note_time(now_s)
        assert draw(found) == [("w0", 0)]
    assert (found.gone, found.finished) == ({}, False)


def test_one_brought_back_goes_on_in_another_process():
    found, again = others_done(), attendance(total=2)
    draw(found)
    again.load(found.save())
    answer_all(again, [("w0", 0)])
    assert draw(again) == [("w0", 1)]


@pytest.mark.parametrize(("limit", "back"), [(0, ["w0"]), (3, ["w0", "w1"])])
def test_those_gone_are_brought_back_the_furthest_behind_first(limit, back):
    found = attendance(limit, total=5)
    found.clock.clocks.clear()
    found.clock.time, found.gone = 5, {"w0": 0, "w1": 2, "w2": 4}
    drawn = draw(found)
    assert [worker for worker, _ in drawn] == back
    assert not found.answer("w2", 4), "nobody may be so far ahead"
    while not found.finished:
        answer_all(found, drawn)
        drawn = draw(found)
        assert found.clock.lead <= limit + 1


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


TOTAL = 12


def to_the_end(found, now_s):
    """Answer all that is given out until it is finished; return how many counted."""
    counted = 0
    while not found.finished:
        now_s += LEASE_S
        found.note_time(now_s)
        for worker, iteration in draw(found):
            if found.answer(worker, iteration):
                found.commit(worker, iteration)
                counted += 1
    return counted


@pytest.mark.parametrize("limit", [0, 1, 3, 8, None])
@given(chances=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=250))
def test_lead_holds_and_all_is_done_or_missed_under_death_and_return(limit, chances):
    found, flying, now, counted = attendance(limit, total=TOTAL), [], 0.0, 0
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
                counted += 1
        assert limit is None or found.clock.lead <= limit + 1
        assert found.clock.time >= before
    counted += to_the_end(found, now)
    assert counted + found.missed == TOTAL * len(WORKERS)
