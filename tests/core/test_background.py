"""Background work: a failing chore harms no other; a loop runs coroutines and ends them."""

import asyncio
import threading

import pytest

from stoilo.core.background import EventLoopThread, Repeater
from stoilo.core.errors import InternalError


def fail() -> bool:
    raise InternalError("STO-R030", "away")


def break_down() -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize("broken", [fail, break_down])
def test_chore_that_fails_keeps_no_other_from_its_turn(broken):
    done = []
    repeater = Repeater("x", [broken, lambda: done.append(1) or True], 9)
    assert repeater.go()
    assert done == [1]


def test_idle_repeater_is_woken_and_stops():
    done = threading.Semaphore(0)
    repeater = Repeater("x", [lambda: done.release() or False], 3600)
    repeater.start()
    assert done.acquire(timeout=9)
    repeater.wake()
    assert done.acquire(timeout=9)
    repeater.stop()
    repeater.stop()


def test_loop_returns_what_a_coroutine_returns():
    loop = EventLoopThread("x")

    async def work() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert loop.run(work()) == "x"
