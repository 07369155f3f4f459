"""Waiting fairly by account, for coroutines of one event loop: turns, room, and waste.

Whoever asks for much waits behind those who ask for little, and nobody waits for another's
waste. A refusal is work too: its message was received, parsed and often read to its end. So
the bytes of a call that ends without effect (refused, or left half-way by its caller) count
against its account, and are forgotten by halves. An account with more than a few MiB of them
is *wasteful*: its messages are asked for one after the other, at a steady pace, until enough
is forgotten. What it sends meanwhile stays at its own end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from stoilo.core.fairqueue import FairQueue, FairRoom, Shares, Turn

AnswerT = TypeVar("AnswerT")
_Waiter = asyncio.Future[Turn["_Waiter"]]
_Sized = tuple[int, asyncio.Future[None]]


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


class Hold:
    """Bytes that one call holds; `resize` gives back what it turns out not to need."""

    def __init__(self, room: BodyLimit, account: int, size: int) -> None:
        self._room = room
        self._account = account
        self.size = size

    def resize(self, size: int) -> None:
        """Hold only `size` bytes from now on; more than before is not to be had."""
        spare = max(0, self.size - size)
        self.size -= spare
        self._room.give(self._account, spare)


class BodyLimit:
    """Bytes of messages in memory, shared by `FairRoom`'s rule. For one event loop.

    Args:
        size: bytes of all messages together.
    """

    def __init__(self, size: int) -> None:
        self._room = FairRoom(size)
        self._waiting: dict[int, deque[_Sized]] = {}

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._room.held

    @asynccontextmanager
    async def hold(self, account: int, size: int) -> AsyncIterator[Hold]:
        """Wait until there is room for `size` bytes of an account, then hold them."""
        await self._take(account, size)
        hold = Hold(self, account, size)
        try:
            yield hold
        finally:
            hold.resize(0)

    def give(self, account: int, size: int) -> None:
        """Take back bytes that were held, for whoever waits."""
        self._room.give(account, size)
        self._serve()

    async def _take(self, account: int, size: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append((size, future))
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._serve()  # those behind it need not wait for it
            else:  # it got its room at the moment when its caller went
                self.give(account, size)
            raise

    def _serve(self) -> None:
        """Give room to the first of each account, again and again while it fits."""
        for account, queue in list(self._waiting.items()):
            while queue and self._goes_on(account, *queue[0]):
                queue.popleft()
            if not queue:
                del self._waiting[account]

    def _goes_on(self, account: int, size: int, future: asyncio.Future[None]) -> bool:
        """Whether a waiter need not wait any more: its caller has gone, or it has room."""
        if future.done():
            return True
        if not self._room.take(account, size):
            return False
        future.set_result(None)
        return True


SLOWEST = 32
"""How many times more slowly at the most: what was wasted is half forgotten meanwhile."""


@dataclass(frozen=True, slots=True)
class WasteBounds:
    """When an account is wasteful, and what it has then."""

    # bytes for nothing, of which more make an account wasteful
    above: int = 8 * 1024 * 1024
    half_life_s: float = 60.0  # after which half of them is forgotten, s
    # of the messages of an account at that bound; who has sent n times as much for
    # nothing is read n times as slowly
    bytes_per_s: float = 512 * 1024


@dataclass(slots=True)
class _Account:
    """Bytes for nothing as of `at`, and when the next message may come."""

    wasted: float = 0.0
    at: float = 0.0
    due: float = 0.0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Waste:
    """What accounts have sent for nothing lately. For one event loop.

    Args:
        bounds: who is wasteful.
        clock: seconds of a clock that is never set.
    """

    def __init__(self, bounds: WasteBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._accounts: dict[int, _Account] = {}

    def add(self, account: int, size: int) -> None:
        """Count bytes of an account that led to nothing."""
        if size <= 0:
            return
        now = self._clock()
        theirs = self._accounts.setdefault(account, _Account())
        theirs.wasted, theirs.at = self._left(theirs, now) + size, now

    def is_wasteful(self, account: int) -> bool:
        """Say whether an account has sent much for nothing lately."""
        theirs = self._accounts.get(account)
        if theirs is None:
            return False
        left = self._left(theirs, self._clock())
        if left < 1:
            del self._accounts[account]  # whoever waits still holds its own lock
        return left > self._bounds.above

    @asynccontextmanager
    async def turn(self, account: int) -> AsyncIterator[Callable[[int], None]]:
        """Wait until a message may be asked for; yield what is told its bytes."""
        if not self.is_wasteful(account):
            yield _free
            return
        theirs = self._accounts[account]

        def pay(size: int) -> None:
            """Say how many bytes came."""
            now = self._clock()
            share = min(self._left(theirs, now) / self._bounds.above, SLOWEST)
            theirs.due = now + share * size / self._bounds.bytes_per_s

        async with theirs.reading:
            await asyncio.sleep(max(0.0, theirs.due - self._clock()))
            yield pay

    def _left(self, theirs: _Account, now: float) -> float:
        age = max(0.0, now - theirs.at)
        return float(theirs.wasted * 0.5 ** (age / self._bounds.half_life_s))


def _free(size: int) -> None:
    """Take nothing for a message of `size` bytes."""
