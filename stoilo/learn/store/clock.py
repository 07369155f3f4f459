"""The vector clock: how far workers may run ahead of each other (BSP, SSP, ASP).

A worker is a part of the data. Its clock is the number of iterations whose updates are
in; the server's time is the lowest clock of those that are alive. With limit ``s`` an
iteration may start when the time is at least ``clock - s``: ``s = 0`` is BSP (all wait for
all), ``None`` is ASP (nobody waits). No worker's clock is ever more than ``s + 1`` ahead
of the slowest. What may not start is not handed out, so that no volunteer waits.

A pure state machine: no time of day, no threads. Source: Ho et al. 2013 (stale
synchronous parallel); the protocol published with Paracel is not followed, for it counts
commits twice, modulo the limit, and by the number of workers that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Plain


@dataclass(slots=True)
class VectorClock:
    """Clocks of the live workers, and the time of the server.

    Attributes:
        limit: ``s``; None for no limit.
        time: never goes back.
        clocks: of the workers that are alive.
    """

    limit: int | None = 0
    time: int = 0
    clocks: dict[str, int] = field(default_factory=dict)
    _furthest: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise UsageError("STO-T062", f"the limit {self.limit} is negative")

    @property
    def lead(self) -> int:
        """How far the fastest live worker is ahead of the slowest, in iterations."""
        return max(self.clocks.values(), default=0) - min(
            self.clocks.values(), default=0
        )

    @property
    def slowest(self) -> int:
        """The lowest clock alive, the furthest when nobody is: behind the time if recalled."""
        return min(self.clocks.values(), default=self._furthest)

    def join(self, workers: Iterable[str], clock: int = 0) -> None:
        """Let workers in, new or come back, at `clock` or the server's time if later.

        Who is alive stays where he is.
        """
        for worker in workers:
            # Never behind the time: nobody shall wait for iterations that are over.
            self.clocks.setdefault(worker, max(clock, self.time))

    def recall(self, worker: str, clock: int) -> None:
        """Let a worker in behind the time, which stays: it does what it left undone.

        Nobody who is alive may start an iteration that is too far ahead of it.
        """
        self.clocks.setdefault(worker, clock)

    def leave(self, worker: str) -> None:
        """Take a worker out that was given up: nobody waits for it any longer."""
        self.clocks.pop(worker, None)
        self._advance()

    def finish(self, worker: str) -> None:
        """Take a worker out that did all its iterations: its clock counts as endless.

        When the last one finishes, the time becomes the furthest clock: a final read
        waits for that.
        """
        self._furthest = max(self._furthest, self.clocks.pop(worker, 0))
        self._advance()

    def may_start(self, worker: str) -> bool:
        """Return whether the worker's next iteration may be handed out."""
        clock = self.clocks.get(worker)
        if clock is None:
            return False
        if self.limit is None:
            return True
        return (self.slowest if clock < self.time else self.time) >= clock - self.limit

    def need(self, worker: str) -> int:
        """Return how old a value the worker may use: fetched at this time or later."""
        if self.limit is None:
            return 0
        return max(0, self.clock_of(worker) - self.limit)

    def clock_of(self, worker: str) -> int:
        """Return a live worker's clock, or raise ``STO-T063``."""
        clock = self.clocks.get(worker)
        if clock is None:
            raise UsageError("STO-T063", f"worker {worker[:40]!r} is not alive")
        return clock

    def commit(self, worker: str, iteration: int) -> bool:
        """Note that `iteration` (from 0) of a worker is in; return whether it was new.

        A repetition, and what comes from a worker that was given up, changes nothing.

        Raises:
            UsageError: ``STO-T064``, an iteration before its predecessor.
        """
        clock = self.clocks.get(worker)
        if clock is None or iteration < clock:
            return False
        if iteration > clock:
            raise UsageError(
                "STO-T064",
                f"iteration {iteration} of {worker[:40]!r} came before {clock}",
            )
        self.clocks[worker] = clock + 1
        self._advance()
        return True

    def save(self) -> dict[str, Plain]:
        """Return the state as plain data."""
        return {
            "limit": self.limit,
            "time": self.time,
            "furthest": self._furthest,
            "clocks": dict(self.clocks),
        }

    @classmethod
    def restore(cls, plain: Mapping[str, Plain]) -> Self:
        """Return the clock that was saved."""
        limit, clocks = plain.get("limit", ""), plain.get("clocks")
        time, furthest = plain.get("time"), plain.get("furthest")
        if not (
            (limit is None or isinstance(limit, int))
            and isinstance(clocks, dict)
            and isinstance(time, int)
            and isinstance(furthest, int)
        ):
            raise UsageError("STO-T065", "the saved clock has a wrong form")
        counted = {name: c for name, c in clocks.items() if isinstance(c, int)}
        return cls(limit, time, counted, furthest)

    def _advance(self) -> None:
        self.time = max(self.time, self.slowest)


@dataclass(slots=True)
class Leases:
    """Until when each worker is believed to be alive.

    The times are the caller's (s, any clock that does not go back).

    Attributes:
        duration_s: how long one sign of life counts.
        until: per worker, when its lease ends.
    """

    duration_s: float
    until: dict[str, float] = field(default_factory=dict)

    def renew(self, worker: str, now_s: float) -> None:
        """Note a sign of life."""
        self.until[worker] = now_s + self.duration_s

    def release(self, worker: str) -> None:
        """Forget a worker that ended by itself."""
        self.until.pop(worker, None)

    def expired(self, now_s: float) -> tuple[str, ...]:
        """Return the workers whose lease has ended, in the order of their names."""
        return tuple(sorted(w for w, end in self.until.items() if end <= now_s))

    def expire(self, clock: VectorClock, now_s: float) -> tuple[str, ...]:
        """Take the workers whose lease has ended out of `clock`; return them.

        What they send later is refused by the clock. Their iteration is to be ordered
        again: `VectorClock.join` lets the worker back in.
        """
        gone = self.expired(now_s)
        for worker in gone:
            self.release(worker)
            clock.leave(worker)
        return gone
