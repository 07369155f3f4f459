from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoilo.server.admission.fairness import BodyLimit, Hold


async def take(room: BodyLimit, account: int, size: int) -> asyncio.Task[Hold]:
    """Begin to hold for ever; give the loop a turn."""

    async def hold() -> Hold:
        return await room.hold(account, size).__aenter__()

    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


@asynccontextmanager
async def full_room() -> AsyncIterator[tuple[BodyLimit, Hold]]:
    """A room of 10 of which account 1 holds its most."""
    room = BodyLimit(10)
    async with room.hold(1, 5) as hold:
        yield room, hold


def test_account_waits_for_its_own_and_others_go_past() -> None:
    async def run() -> None:
        async with full_room() as (room, hold):
            second, other = await take(room, 1, 5), await take(room, 2, 2)
            assert (second.done(), other.done()) == (False, True)
            hold.resize(0)
            other.result().resize(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert second.done()

    asyncio.run(run())


def test_caller_who_goes_leaves_nothing_held_and_nobody_waiting() -> None:
    async def run() -> None:
        async with full_room() as (room, _):
            gone = [await take(room, 1, 5) for _ in range(3)]
            behind = await take(room, 1, 0)
            assert not behind.done()
            for task in gone:
                task.cancel()
            await asyncio.wait([*gone, behind], timeout=5)
            assert behind.done()
        assert room.held == 0

    asyncio.run(run())


def test_caller_who_goes_as_his_turn_comes_gives_it_back() -> None:
    async def run() -> None:
        async with full_room() as (room, hold):
            task = await take(room, 1, 5)
            hold.resize(0)  # it has its room, and does not know it yet
            task.cancel()
            await asyncio.wait([task])
            assert room.held == 0

    asyncio.run(run())


def test_hold_only_shrinks() -> None:
    async def run() -> None:
        async with full_room() as (room, hold):
            hold.resize(9)
            assert (hold.size, room.held) == (5, 5)
            hold.resize(1)
            assert room.held == 1
        assert room.held == 0

    asyncio.run(run())
