"""How long answers take, and which orders are out much longer than that."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["Pace"]

KEPT = 100
"""How many durations the median looks back over."""
FACTOR = 2.0
"""An order is late after so many times the median."""
LEAST = 3
"""With fewer known durations nothing is late."""


class Pace:
    """Begin and end of jobs, by the backend's clock, s."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._took: deque[float] = deque(maxlen=KEPT)

    def begin(self, job_id: str, at: float) -> None:
        """Note that a job was submitted."""
        self._began.setdefault(job_id, at)

    def end(self, job_id: str, at: float) -> float:
        """Note that it ended and return how long it was out, s; 0 when it is not known."""
        began = self._began.pop(job_id, None)
        if began is None:
            return 0.0
        self._took.append(max(0.0, at - began))
        return self._took[-1]

    def forget(self, job_id: str) -> None:
        """Note that nobody waits for it any more."""
        self._began.pop(job_id, None)

    def count_late(self, now: float) -> int:
        """Return how many jobs are out for longer than `FACTOR` times the median."""
        if len(self._took) < LEAST:
            return 0
        limit = FACTOR * statistics.median(self._took)
        return sum(now - began > limit for began in self._began.values())
