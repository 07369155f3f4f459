"""Who waits for work, and is woken when there may be some."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Offers:
    """Wakes who waits for work when there may be some; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """How often there was something new to hand out."""
        return self._count

    def note(self) -> None:
        """Say that there are results to hand out, in the database already."""
        with self._lock:
            self._count += 1
            woken, self._waiting = self._waiting, set()
        for one in woken:
            with suppress(RuntimeError):  # its loop has ended
                one.get_loop().call_soon_threadsafe(_wake, one)

    async def wait(self, seen: int, seconds: float) -> int:
        """Return the count once it is another than `seen`, or after so many s."""
        came = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._count != seen:
                return self._count
            self._waiting.add(came)
        try:
            await asyncio.wait_for(came, seconds)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard(came)
        return self._count


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
