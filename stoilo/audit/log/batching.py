"""Gather appends of many callers into batches: the queue before the single writer.

Callers of one batch wait on one lock, the baton: the writer lets it go once, and each
caller passes it on. So a batch of 64 wakes one thread after another, not 64 at once that
would then queue for the interpreter: waking is most of what a small append costs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoilo.core.errors import StoiloError


@dataclass(slots=True, eq=False)
class AppendBatch:
    """Requests that are written together and answered together."""

    requests: list[AppendRequest] = field(default_factory=list)  # in order of arrival
    leaves: int = 0  # how many leaves they hold
    _baton: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._baton.acquire()

    def finish(self) -> None:
        """Let the callers go, one after another; called once, by the writer."""
        self._baton.release()

    def wait(self) -> None:
        """Wait for `finish`, and pass the baton on."""
        with self._baton:
            pass


@dataclass(slots=True, eq=False)
class AppendRequest:
    """Leaves of one caller."""

    leaves: Sequence[bytes]  # bytes to log, in order
    hashes: Sequence[bytes]  # their leaf hashes
    # their private labels, None for none; empty when none has one
    labels: Sequence[str | None]
    indices: Sequence[int] = ()  # filled in by the writer
    error: StoiloError | None = None  # set by the writer instead
    batch: AppendBatch | None = None  # what it waits with; set by the queue

    def result(self) -> list[int]:
        """Wait for the writer; return the indices or raise its error."""
        assert self.batch is not None  # noqa: S101 - the queue took it
        self.batch.wait()
        if self.error is not None:
            raise self.error
        return list(self.indices)


class AppendQueue:
    """Requests in order of arrival, handed out in batches."""

    def __init__(
        self,
        # most leaves in a batch (one larger request is a batch of its own)
        batch_leaves: int,
        # how long a batch waits for one more caller, s, until there are as many as the
        # last one had. They were released together and are on their way back; a lone
        # caller at rest never waits.
        gather_s: float,
    ) -> None:
        self._batch_leaves = batch_leaves
        self._gather_s = gather_s
        self._batches = deque([AppendBatch()])  # the last one still takes requests
        self._count = 0  # requests in them
        self._guard = threading.Lock()
        self._arrived = threading.Condition(self._guard)
        self._open = True
        self._last = 0
        self._wanted = 1  # how many requests the writer waits for: it is woken once

    def put(self, request: AppendRequest) -> bool:
        """Queue a request; False when the queue is closed."""
        size = len(request.leaves)
        with self._guard:
            if not self._open:
                return False
            batch = self._batches[-1]
            if batch.requests and batch.leaves + size > self._batch_leaves:
                batch = AppendBatch()
                self._batches.append(batch)
            request.batch = batch
            batch.requests.append(request)
            batch.leaves += size
            self._count += 1
            if self._count == self._wanted:
                self._arrived.notify()
        return True

    def close(self) -> None:
        """Take no more requests; what is queued is still handed out."""
        with self._arrived:
            self._open = False
            self._arrived.notify_all()

    def next_batch(self) -> AppendBatch | None:
        """Wait for requests and return a batch; None when closed and drained."""
        with self._arrived:
            self._wait(1, None)
            seen = 0
            while seen < self._count < self._last:
                seen = self._count
                self._wait(self._last, self._gather_s)
            batch = self._batches.popleft()
            if not self._batches:
                self._batches.append(AppendBatch())
            self._last = len(batch.requests)
            self._count -= self._last
            return batch if batch.requests else None

    def _wait(self, wanted: int, timeout: float | None) -> None:
        self._wanted = wanted
        self._arrived.wait_for(lambda: self._count >= wanted or not self._open, timeout)
        self._wanted = 0  # nobody is waiting


@dataclass(frozen=True, slots=True)
class SequencerSettings:
    """How the writer paces itself."""

    batch_leaves: int = 1000  # most leaves in one transaction
    # how long a batch waits for one more caller while others are arriving, s
    gather_s: float = 0.0005
    # least time between two checkpoints, s; the first after a pause is never delayed
    publish_interval_s: float = 0.04
    # the same after a checkpoint that took in a whole tile or more, s: publishing
    # flushes files, and competes with appending for the disk
    busy_interval_s: float = 0.2
    retry_s: float = 0.5  # pause after a failed publication, s
    close_s: float = 10.0  # how long `close` waits for the last publication, s
