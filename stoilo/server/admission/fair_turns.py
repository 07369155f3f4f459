"""Turns at slow work, fair between accounts: `FairQueue` for coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from stoilo.core.fairqueue import FairQueue, Shares, Turn

AnswerT = TypeVar("AnswerT")
_Waiter = asyncio.Future[Turn["_Waiter"]]


class FairTurns:
    """Lets so many at once as the shares have slots; a turn costs its seconds.

    For one event loop. Whoever goes away while he waits is forgotten.
    """

    def __init__(
        self, shares: Shares, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue: FairQueue[_Waiter] = FairQueue(shares)
        self._clock = clock

    @asynccontextmanager
    async def one(self, account: int) -> AsyncIterator[None]:
        """Wait for a turn of an account, and have it meanwhile."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._queue.put(account, "", waiter)
        self._serve()
        try:
            turn = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # his turn came at the moment when he went
                self._end(waiter.result(), 0.0)
            raise
        began = self._clock()
        try:
            yield
        finally:
            self._end(turn, self._clock() - began)

    def _end(self, turn: Turn[_Waiter], cost: float) -> None:
        self._queue.finish(turn, cost, self._clock())
        self._serve()

    def _serve(self) -> None:
        """Give out every turn that may be had now."""
        while (turn := self._queue.take(self._clock())) is not None:
            if turn.item.done():
                self._queue.finish(turn, 0.0, self._clock())
            else:
                turn.item.set_result(turn)


async def in_thread(work: Callable[[], AnswerT]) -> AnswerT:
    """Do blocking work in a thread; when its caller goes meanwhile, still wait for it.

    A thread cannot be stopped. What the work holds (a turn, room, a file) is the caller's
    to give back, and must not be given back before the work has ended.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # nobody is there to see it
        raise
