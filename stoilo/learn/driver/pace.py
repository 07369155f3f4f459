"""How fast answers come: what is late, how finely work is cut, when a task is given up.

A trainer knows no hosts, and whoever is free takes the next task. So what counts is how
much hosts differ: as many pieces as the slow are slower than the fast let a fast one do as
many in the time of one, and hosts that are alike are given whole parts. How long a host
computed is its claim, bounded by how long it was out; ranks of all answers are compared, so
that fewer liars than a tenth move nothing, and the others pieces by a bounded number.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable

KEPT = 100  # how many durations the median looks back over
FACTOR = 2.0  # an order is late after so many times the median
LEAST = 3  # with fewer known durations nothing is late

KNOWN = 8  # with fewer answers no speeds are known
MOST_CUTS = 8  # pieces of a part's work
_MARGIN, _MOST = 2.0, 8.0  # times the 95th percentile; at most so many times the median


class Pace:
    """How long jobs took, by the backend's clock, s."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=KEPT)

    def note(self, took: float) -> float:
        """Note how long a job was out and return that."""
        self._took.append(max(0.0, took))
        return self._took[-1]

    def count_late(self, began: Iterable[float], now: float) -> int:
        """Return how many jobs are out for longer than `FACTOR` times the median."""
        if len(self._took) < LEAST:
            return 0
        limit = FACTOR * statistics.median(self._took)
        return sum(now - one > limit for one in began)


class Speeds:
    """How long hosts take for a sample, s; the newest answers tell."""

    def __init__(self) -> None:
        # What hosts say they computed, and how long they were out; by the sample
        self._computed: deque[float] = deque(maxlen=KEPT)
        self._out: deque[float] = deque(maxlen=KEPT)

    def note(self, samples: int, took: float, claimed: float) -> None:
        """Note an answer; what is not claimed is the time that it was out."""
        self._computed.append((min(claimed, took) if claimed > 0.0 else took) / samples)
        self._out.append(took / samples)

    def count_cuts(self) -> int:
        """Return into how many pieces a part's work goes: slow ones by fast ones."""
        if len(self._computed) < KNOWN:
            return 1
        fast, slow = _rank(self._computed, 0.25), _rank(self._computed, 0.9)
        return min(MOST_CUTS, round(slow / fast)) if fast > 0.0 else 1

    def find_deadline(self, samples: int) -> float | None:
        """Return after how many s somebody else gets the work too; None: not known."""
        if len(self._out) < KNOWN:
            return None
        most = _MOST * statistics.median(self._out)
        return samples * min(_MARGIN * _rank(self._out, 0.95), most)


def _rank(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]
