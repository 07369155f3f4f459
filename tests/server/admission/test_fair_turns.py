from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from stoilo.core.fairqueue import Shares
from stoilo.server.admission.fairness import FairTurns, in_thread

SHARES = Shares(slots=2, busy_above=1.0, half_life_s=1000.0)


class Stage:
    """Turns on a clock by hand; notes whose turn came."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = FairTurns(SHARES, lambda: self.now)
        self.order: list[int] = []

    async def work(self, account: int, seconds: float) -> None:
        """Have one turn that takes so long."""
        async with self.turns.one(account):
            self.order.append(account)
            await asyncio.sleep(0)
            self.now += seconds


def play(work: Callable[[Stage], object]) -> Stage:
    stage = Stage()

    async def run() -> None:
        await work(stage)  # type: ignore[misc]  # a coroutine

    asyncio.run(run())
    return stage


def test_account_that_asks_for_much_does_not_hold_up_another() -> None:
    async def work(stage: Stage) -> None:
        many = [asyncio.create_task(stage.work(1, 2.0)) for _ in range(20)]
        await asyncio.sleep(0)
        await stage.work(2, 0.1)
        await asyncio.gather(*many)

    assert play(work).order.index(2) <= 2


def test_callers_who_go_are_not_served_and_hold_nobody_up() -> None:
    async def work(stage: Stage) -> None:
        async with stage.turns.one(1):
            gone = [asyncio.create_task(stage.work(1, 1.0)) for _ in range(5)]
            await asyncio.sleep(0)
            for task in gone:
                task.cancel()
            await asyncio.wait(gone)
        await stage.work(1, 1.0)
        await stage.work(3, 1.0)

    assert play(work).order == [1, 3]


def test_turn_that_comes_as_its_caller_goes_is_given_on() -> None:
    async def work(stage: Stage) -> None:
        async with stage.turns.one(1):
            going = asyncio.create_task(stage.work(1, 1.0))
            await asyncio.sleep(0)
        going.cancel()  # it has its turn, and does not know it yet
        await asyncio.wait([going])
        await asyncio.gather(stage.work(1, 0.0), stage.work(2, 0.0))

    assert sorted(play(work).order) == [1, 2]


def test_work_that_has_begun_is_waited_for_when_its_caller_goes() -> None:
    ended, go_on = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        ended.set()
        raise ValueError

    async def run() -> None:
        task = asyncio.create_task(in_thread(work))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())
