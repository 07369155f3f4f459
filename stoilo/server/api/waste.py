"""Bytes that were sent for nothing: who sends many of them is read slowly for a while.

A refusal is work too: its message was received, parsed and often read to its end. So the
bytes of a call that ends without effect (refused, or left half-way by its caller) count
against its account, and are forgotten by halves. An account with more than a few MiB of
them is *wasteful*: its messages are asked for one after the other, at a steady pace, until
enough is forgotten. What it sends meanwhile stays at its own end. Others never wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SLOWEST = 32
"""How many times more slowly at the most: what was wasted is half forgotten meanwhile."""


@dataclass(frozen=True, slots=True)
class WasteBounds:
    """When an account is wasteful, and what it has then.

    Attributes:
        above: bytes for nothing, of which more make an account wasteful.
        half_life_s: after which half of them is forgotten, s.
        bytes_per_s: of the messages of an account at that bound; who has sent n times as
            much for nothing is read n times as slowly.
    """

    above: int = 8 * 1024 * 1024
    half_life_s: float = 60.0
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
