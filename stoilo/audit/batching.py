"""Gather appends of many callers into batches: the queue before the single writer."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.core.errors import StoiloError

__all__ = ["AppendQueue", "AppendRequest"]


@dataclass(slots=True)
class AppendRequest:
    """Leaves of one caller, and the latch it waits on.

    Attributes:
        leaves: bytes to log, in order.
        hashes: their leaf hashes.
        labels: their private labels, None for none.
        indices: filled in by the writer.
        error: set by the writer instead.
    """

    leaves: Sequence[bytes]
    hashes: Sequence[bytes]
    labels: Sequence[str | None]
    indices: list[int] = field(default_factory=list)
    error: StoiloError | None = None
    # A bare lock is the cheapest one-shot latch between two threads.
    _latch: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._latch.acquire()

    def finish(self) -> None:
        """Let the caller go; called once, by the writer."""
        self._latch.release()

    def result(self) -> list[int]:
        """Wait for the writer; return the indices or raise its error."""
        self._latch.acquire()
        if self.error is not None:
            raise self.error
        return self.indices


class AppendQueue:
    """Requests in order of arrival, handed out in batches.

    Args:
        batch_leaves: most leaves in a batch (one larger request is a batch of its own).
        gather_s: how long a batch may wait for as many callers as the last one had, s.
            They were released together and are on their way back; a lone caller at rest
            never waits.
    """

    def __init__(self, batch_leaves: int, gather_s: float) -> None:
        self._batch_leaves = batch_leaves
        self._gather_s = gather_s
        self._waiting: deque[AppendRequest] = deque()
        self._arrived = threading.Condition()
        self._open = True
        self._last = 0
        self._wanted = 1  # how many requests the writer waits for: it is woken once

    @property
    def is_open(self) -> bool:
        """Whether requests are still taken."""
        return self._open

    def put(self, request: AppendRequest) -> bool:
        """Queue a request; False when the queue is closed."""
        with self._arrived:
            if self._open:
                self._waiting.append(request)
                if len(self._waiting) >= self._wanted:
                    self._arrived.notify()
            return self._open

    def close(self) -> None:
        """Take no more requests; what is queued is still handed out."""
        with self._arrived:
            self._open = False
            self._arrived.notify_all()

    def next_batch(self) -> list[AppendRequest]:
        """Wait for requests and return a batch; empty when closed and drained."""
        with self._arrived:
            self._wait(1, None)
            if 1 < self._last > len(self._waiting):
                self._wait(self._last, self._gather_s)
            batch: list[AppendRequest] = []
            room = self._batch_leaves
            while self._waiting and (not batch or len(self._waiting[0].leaves) <= room):
                batch.append(self._waiting.popleft())
                room -= len(batch[-1].leaves)
            self._last = len(batch)
            return batch

    def _wait(self, wanted: int, timeout: float | None) -> None:
        self._wanted = wanted
        self._arrived.wait_for(
            lambda: len(self._waiting) >= wanted or not self._open, timeout
        )
