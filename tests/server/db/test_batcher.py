from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from stoilo.server.db.batcher import Batcher


class SlowWork:
    """Works on batches; the first waits until it may go on."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.may_go_on = threading.Event()

    def __call__(self, batch: Sequence[int]) -> list[int | Exception]:
        self.seen += batch
        self.may_go_on.wait(10)
        return [ValueError("not below 0") if item < 0 else 2 * item for item in batch]


def test_items_that_come_meanwhile_share_the_next_batch() -> None:
    async def run() -> list[int]:
        work = SlowWork()
        work.may_go_on.set()
        batcher = Batcher(work)
        return await asyncio.gather(*(batcher.submit(number) for number in range(5)))

    assert asyncio.run(run()) == [0, 2, 4, 6, 8]


def test_callers_who_have_gone_are_not_worked_for() -> None:
    async def run() -> SlowWork:
        work = SlowWork()
        batcher = Batcher(work)
        tasks = [asyncio.create_task(batcher.submit(number)) for number in range(9)]
        await asyncio.sleep(0.05)  # the first batch has begun
        more = [asyncio.create_task(batcher.submit(number)) for number in (20, 21, 22)]
        await asyncio.sleep(0)
        more[0].cancel()
        more[2].cancel()
        await asyncio.sleep(0)
        work.may_go_on.set()
        await asyncio.gather(*tasks, more[1])
        assert batcher.idle
        return work

    assert asyncio.run(run()).seen == [*range(9), 21]


def test_error_goes_to_its_caller_only() -> None:
    async def run() -> None:
        work = SlowWork()
        work.may_go_on.set()
        batcher = Batcher(work)
        good, bad = batcher.submit(1), batcher.submit(-1)
        with pytest.raises(ValueError, match="not below 0"):
            await bad
        assert await good == 2

    asyncio.run(run())
