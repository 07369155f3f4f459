from __future__ import annotations

import asyncio

import pytest

from stoilo.server.admission.fairness import Waste, WasteBounds
from tests.support.server import ManualClock

BOUNDS = WasteBounds(above=100, half_life_s=10.0, bytes_per_s=1000.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize(("size", "wasteful"), [(100, False), (101, True), (-5, False)])
def test_account_is_wasteful_above_the_bound_and_nobody_else(
    clock: ManualClock, size: int, wasteful: bool
) -> None:
    waste = Waste(BOUNDS, clock)
    waste.add(1, size)
    assert waste.is_wasteful(1) is wasteful
    assert not waste.is_wasteful(2)


def test_waste_is_forgotten_by_halves_and_the_account_with_it(
    clock: ManualClock,
) -> None:
    waste = Waste(BOUNDS, clock)
    waste.add(1, 150)
    clock.now += 10
    assert not waste.is_wasteful(1)
    waste.add(1, 30)
    assert waste.is_wasteful(1)
    clock.now += 1000
    assert not waste.is_wasteful(1)
    assert not waste._accounts


async def in_hand(waste: Waste, account: int, calls: int) -> int:
    """Return how many of so many calls are asked for their messages side by side."""
    asked = 0

    async def one() -> None:
        nonlocal asked
        async with waste.turn(account):
            asked += 1
            await asyncio.sleep(3600)

    tasks = [asyncio.create_task(one()) for _ in range(calls)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return asked


@pytest.mark.parametrize(("account", "asked"), [(1, 1), (2, 20)])
def test_messages_of_a_wasteful_account_come_one_after_the_other(
    clock: ManualClock, account: int, asked: int
) -> None:
    async def run() -> int:
        waste = Waste(BOUNDS, clock)
        waste.add(1, 1000)
        return await in_hand(waste, account, 20)

    assert asyncio.run(run()) == asked


@pytest.mark.parametrize(("size", "asked"), [(1000, 0), (0, 1)])
def test_next_message_waits_for_the_bytes_of_the_one_before(
    clock: ManualClock, size: int, asked: int
) -> None:
    async def run() -> int:
        waste = Waste(BOUNDS, clock)
        waste.add(1, 1000)
        async with waste.turn(1) as pay:
            pay(size)
        return await in_hand(waste, 1, 3)

    assert asyncio.run(run()) == asked


@pytest.mark.parametrize(("wasted", "waited_s"), [(101, 1), (400, 4), (100_000, 32)])
def test_who_wasted_more_is_read_more_slowly(
    clock: ManualClock,
    wasted: int,
    waited_s: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> None:
        waste = Waste(BOUNDS, clock)
        waste.add(1, wasted)
        async with waste.turn(1) as pay:
            pay(1000)
        async with waste.turn(1):
            pass

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(run())
    assert slept[-1] == pytest.approx(waited_s, rel=0.02)


def test_caller_who_goes_away_lets_the_next_one_in(clock: ManualClock) -> None:
    async def run() -> None:
        waste = Waste(BOUNDS, clock)
        waste.add(1, 1000)
        assert await in_hand(waste, 1, 5) == 1
        async with asyncio.timeout(10), waste.turn(1):
            pass

    asyncio.run(run())
