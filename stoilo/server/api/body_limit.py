"""Waiting for room for a message: on the event loop, in turn within each account."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoilo.core.fairqueue import FairRoom

_Waiter = tuple[int, asyncio.Future[None]]


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
        self._waiting: dict[int, deque[_Waiter]] = {}

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
