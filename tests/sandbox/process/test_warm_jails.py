"""Warm jails: started where needed, the least used ended for room, none that runs."""

import os
import threading
from types import SimpleNamespace

import pytest

from stoilo.core.errors import InternalError
from stoilo.core.levels import load_levels
from stoilo.core.types import RunLimits
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.process.warm_jails import (
    WarmJails,
    memory_for_zygotes,
    zygote_bytes,
)

LIMITS = RunLimits()
PAGE = os.sysconf("SC_PAGE_SIZE")


class FakeJail:
    """Takes 10 bytes; a run waits where it is told to."""

    def __init__(self):
        self.closed, self.running, self.go = False, threading.Event(), threading.Event()

    def run(self, request, *_limits, **_watch):
        assert not self.closed
        self.running.set()
        assert request != b"wait" or self.go.wait(30)
        return request

    def close(self):
        self.closed = True


@pytest.fixture
def made():
    return []


@pytest.fixture
def jails():
    """Room for two."""
    return WarmJails(20, measure=lambda _: 10)


def start(jails, made, key):
    return jails.of(key, lambda: made.append(FakeJail()) or made[-1])


def test_one_jail_a_key_is_started_and_used_again(jails, made):
    for _ in range(3):
        assert start(jails, made, "a").run(b"x", LIMITS) == b"x"
    assert len(made) == 1


def test_least_used_is_ended_for_another(jails, made):
    for key in ("a", "b", "a", "c"):
        start(jails, made, key)
    assert set(jails.warm()) == {"a", "c"}
    assert [one.closed for one in made] == [False, True, False]


def test_ended_jail_starts_again_for_a_run(jails, made):
    first = start(jails, made, "a")
    for key in ("b", "c"):
        start(jails, made, key)
    assert "a" not in jails.warm()
    assert first.run(b"x", LIMITS) == b"x"
    assert len(made) == 4


def test_jail_that_runs_is_never_ended(jails, made):
    busy = start(jails, made, "a")
    thread = threading.Thread(target=busy.run, args=(b"wait", LIMITS))
    thread.start()
    assert made[0].running.wait(30)
    for key in ("b", "c", "d"):
        start(jails, made, key)
    assert set(jails.warm()) == {"a", "d"}
    made[0].go.set()
    thread.join()
    start(jails, made, "e")
    assert "a" not in jails.warm()


def test_one_larger_than_all_room_still_runs(made):
    jails = WarmJails(1, measure=lambda _: 10)
    start(jails, made, "a")
    assert start(jails, made, "b").run(b"x", LIMITS) == b"x"
    assert jails.warm() == ("b",)


def test_nothing_starts_once_closed(jails, made):
    first = start(jails, made, "a")
    jails.close()
    assert made[0].closed
    for ask in (lambda: first.run(b"x", LIMITS), lambda: start(jails, made, "b")):
        with pytest.raises(InternalError, match="STO-S008"):
            ask()


def test_jail_that_cannot_start_is_tried_again(jails):
    def fail():
        raise InternalError("STO-S003", "no")

    with pytest.raises(InternalError):
        jails.of("a", fail)
    assert jails.warm() == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"smaps_rollup": "00 rollup\nPss:  12 kB\n", "statm": "9 9 9"}, 12 * 1024),
        ({"statm": "900 3 1\n"}, 3 * PAGE),
        ({"task/7/children": "8 9\n", "statm": "9 1", "../8/statm": "9 2"}, 3 * PAGE),
        ({}, 0),
    ],
)
def test_memory_is_the_share_of_pages_or_all_of_them(tmp_path, files, expected):
    for name, text in files.items():
        place = tmp_path / "7" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    assert zygote_bytes(SimpleNamespace(zygote_pid=7), tmp_path) == expected


def test_owner_only_lowers_what_zygotes_may_take():
    share = memory_for_zygotes()
    assert memory_for_zygotes(share + 1) == share > memory_for_zygotes(1) == 1


def test_real_zygote_takes_what_it_has_imported():
    levels = load_levels()
    with Jail(levels[0], TASK_JOB) as pure, Jail(levels[1], TASK_JOB) as numeric:
        assert 1 << 20 < zygote_bytes(pure) < zygote_bytes(numeric) < 1 << 30
