"""The vector clock for workers that run beside each other: they wait, and may die.

For project-run workers in threads. A worker waits where it reads; its lease runs from there
to its commit. One whose lease has ended is not waited for; when it comes back after all it
joins at the server's time, and the iteration that it was in does not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from stoilo.core.errors import WaitError
from stoilo.learn.ps.clock import VectorClock
from stoilo.learn.ps.leases import Leases

__all__ = ["ClockService"]


class ClockService:
    """One clock, any number of threads.

    Args:
        workers: who takes part.
        limit: how many iterations a worker may be ahead; 0 is BSP, None is ASP.
        lease_s: how long an iteration may take before nobody waits for it; None for ever.
        now: any clock in s that does not go back.
    """

    def __init__(
        self,
        workers: Iterable[str],
        limit: int | None = 0,
        *,
        lease_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = VectorClock(limit)
        self.clock.join(workers)
        self._leases = None if lease_s is None else Leases(lease_s)
        self._now = now
        self._changed = threading.Condition()
        self._arrived: set[str] = set()
        self._barriers = 0

    @property
    def time(self) -> int:
        """The lowest clock of those that are alive."""
        with self._changed:
            return self.clock.time

    def await_start(self, worker: str, limit_s: float | None = None) -> int:
        """Wait until the worker's iteration may run; return its number.

        A sign of life; one that was given up joins again.

        Raises:
            WaitError: ``STO-T066`` when `limit_s` passed before.
        """
        with self._changed:
            self.clock.join([worker])
            self._wait(worker, lambda: self.clock.may_start(worker), limit_s)
            if self._leases is not None:
                self._leases.renew(worker, self._now())
            return self.clock.clock_of(worker)

    def await_time(self, time: int, limit_s: float | None = None) -> None:
        """Wait until all iterations before `time` are in, or nobody is alive.

        Raises:
            WaitError: ``STO-T066`` when `limit_s` passed before.
        """
        with self._changed:
            self._wait(
                "", lambda: self.clock.time >= time or not self.clock.clocks, limit_s
            )

    def commit(self, worker: str, iteration: int) -> bool:
        """Note that an iteration is in; return whether it counted."""
        with self._changed:
            self._expire()
            self._release(worker)
            counted = self.clock.commit(worker, iteration)
            self._changed.notify_all()
            return counted

    def sync(self, worker: str) -> None:
        """Wait until every worker that is alive has come here too (a barrier).

        Between reading and updating it makes an iteration of BSP exactly the serial one:
        nobody reads what others have already done in it.
        """
        with self._changed:
            number = self._barriers
            self._arrived.add(worker)
            self._wait(worker, lambda: self._has_met(number), None)
            if self._leases is not None and worker in self.clock.clocks:
                self._leases.renew(worker, self._now())

    def finish(self, worker: str) -> None:
        """Note that a worker did all its iterations."""
        with self._changed:
            self._release(worker)
            self.clock.finish(worker)
            self._changed.notify_all()

    def _has_met(self, number: int) -> bool:
        """Return whether the barrier of that number is open; the last one opens it."""
        if number == self._barriers and self.clock.clocks.keys() <= self._arrived:
            self._barriers, self._arrived = number + 1, set()
            self._changed.notify_all()
        return number != self._barriers

    def _wait(
        self, worker: str, is_ready: Callable[[], bool], limit_s: float | None
    ) -> None:
        """Wait while others commit, end or are given up; who waits here is alive."""
        end = None if limit_s is None else self._now() + limit_s
        while not is_ready():
            self._release(worker)
            self._expire()
            if is_ready():
                return
            if end is not None and self._now() >= end:
                raise WaitError("STO-T066", f"{worker[:40]!r} waits for the others")
            self._changed.wait(self._pause_s(end))

    def _release(self, worker: str) -> None:
        if self._leases is not None:
            self._leases.release(worker)

    def _expire(self) -> None:
        if self._leases is not None and self._leases.expire(self.clock, self._now()):
            self._changed.notify_all()

    def _pause_s(self, end: float | None) -> float | None:
        """Return how long nothing can happen but a commit: to the next lease's end."""
        ends = [] if end is None else [end]
        if self._leases is not None:
            ends += self._leases.until.values()
        return max(1e-3, min(ends) - self._now()) if ends else None
