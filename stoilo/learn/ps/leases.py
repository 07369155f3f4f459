"""Leases: how long a worker may be silent before nobody waits for it any longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoilo.learn.ps.clock import VectorClock

__all__ = ["Leases"]


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
