"""Which copies run at this moment, so that other threads may end them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from stoilo.core.errors import InternalError

__all__ = ["Cancellable", "Runs"]

CANCELLED = "STO-S008"


class Cancellable(Protocol):
    """What can be ended of a run: `stoilo.sandbox.process.exchange.Exchange`."""

    def cancel(self) -> None:
        """Have the child killed, from any thread."""
        ...


class Runs:
    """The runs of one executor by result name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges: dict[str, Cancellable | None] = {}
        self._unwanted: set[str] = set()
        self._closed = False

    @contextmanager
    def hold(self, result: str) -> Iterator[None]:
        """Know `result` as running while the block lasts.

        Raises:
            InternalError: ``STO-S008`` after `close`.
        """
        with self._lock:
            if self._closed:
                raise InternalError(CANCELLED, "this executor is closed")
            self._exchanges[result] = None
        try:
            yield
        finally:
            with self._lock:
                del self._exchanges[result]
                self._unwanted.discard(result)

    def watch(self, result: str, exchange: Cancellable) -> None:
        """Take the exchange of a run that begins; one that is unwanted ends at once."""
        with self._lock:
            self._exchanges[result] = exchange
            unwanted = self._closed or result in self._unwanted
        if unwanted:
            exchange.cancel()

    def cancel(self, result: str) -> None:
        """End one run, also one that is still being prepared; others are unharmed."""
        with self._lock:
            if result not in self._exchanges:
                return
            self._unwanted.add(result)
            exchange = self._exchanges[result]
        if exchange is not None:
            exchange.cancel()

    def close(self) -> None:
        """End every run and let none begin."""
        with self._lock:
            self._closed = True
            running = list(self._exchanges)
        for result in running:
            self.cancel(result)
