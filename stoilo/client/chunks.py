"""How many calls of a map share a task: sized by what they cost to compute.

Of the time from submission to result most may be waiting (a BOINC client asks for work
when it likes), and a chunk of another size would wait as long. What counts is what the
copies computed, as their hosts say; where they say nothing, how much longer the trip was
than the shortest one. Both are claims: they choose sizes within bounds and nothing else.

Everything here is pure; times come from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoilo.core.limits import BOUNDS
from stoilo.core.types import Redundancy

FIRST_ITEMS: Final = 8
TARGET_S: Final = 8.0
"""Wanted computing time of one chunk, s."""

WORTH_S: Final = 2.0
"""Items that compute for less are not divided among several hosts at the end: each would
wait longer than that."""

WINDOW: Final = 6
"""Chunks in flight."""

GROWTH: Final = 64
"""A chunk is at most so many times larger than one that came back."""

CHUNK_BYTES: Final = BOUNDS.inline_arguments_bytes // 2
"""Wanted at most in the arguments of a chunk, and in its answer, bytes."""

DEFAULT_CPU_S: Final = 60
DEFAULT_WALL_S: Final = 120
"""The least that a level allows a run which states no limits, s."""

DEADLINE_SHARE: Final = 0.1
"""Of the time that a host has for a copy: hosts are slower than others, and wait."""


@dataclass(frozen=True, slots=True)
class ChunkCost:
    """What one finished chunk took; the claims come from hosts."""

    items: int  # calls in it
    trip_s: float  # from submission to result, s
    # computing time of its copies as their hosts say, s; 0: unsaid
    claimed_s: float = 0.0
    sent_bytes: int = 0  # of its arguments
    answer_bytes: int = 0  # of its answer

    def computing_s(self, least_trip_s: float) -> float:
        """Return what the copies computed, never more than the trip, s."""
        if self.claimed_s > 0:
            return min(self.claimed_s, self.trip_s)
        return max(0.0, self.trip_s - least_trip_s)


def computing_budget_s(redundancy: Redundancy, cpu_s: int, wall_s: int) -> float:
    """Return how long a chunk may be expected to compute, s.

    Half of the tighter limit (0: the level's default), and a share of the deadline.
    """
    limit = min(cpu_s or DEFAULT_CPU_S, wall_s or DEFAULT_WALL_S)
    return min(limit / 2, redundancy.delay_bound_s * DEADLINE_SHARE)


class ChunkSizer:
    """How many items the next task gets.

    Args:
        fixed: items of every task, None to go by what they cost.
        budget_s: expected computing time that no chunk is to exceed, s.
    """

    def __init__(
        self, fixed: int | None = None, budget_s: float = DEFAULT_CPU_S / 2
    ) -> None:
        self.fixed = fixed
        self.size = fixed or FIRST_ITEMS
        self._budget_s = budget_s
        self._target_s = min(TARGET_S, budget_s)
        self._least_trip_s = float("inf")
        self._smallest: tuple[int, float] | None = None
        self._worth_sharing = FIRST_ITEMS

    def next_size(self, waiting: int) -> int:
        """Return the next chunk's size with `waiting` items left, at least 1."""
        if self.fixed:
            return max(1, min(self.fixed, waiting, BOUNDS.map_items))
        fair = max(-(-waiting // WINDOW), self._worth_sharing, FIRST_ITEMS)
        return max(1, min(self.size, fair, waiting, BOUNDS.map_items))

    def fitting(self, items: int, nbytes: int) -> int:
        """Return how many of `items` shall travel together that take `nbytes`."""
        if self.fixed or nbytes <= CHUNK_BYTES:
            return items
        self.size = max(1, min(items - 1, items * CHUNK_BYTES // nbytes))
        return self.size

    def halve(self, items: int) -> None:
        """Note that a chunk of `items` was too much for a limit."""
        if not self.fixed:
            self.size = max(1, min(self.size, items // 2))

    def note(self, cost: ChunkCost) -> None:
        """Learn from a finished chunk."""
        if self.fixed:
            return
        self._least_trip_s = min(self._least_trip_s, cost.trip_s)
        took = cost.computing_s(self._least_trip_s)
        factor = min(self._by_time(cost.items, took), _by_bytes(cost))
        size = max(1, min(int(cost.items * factor), BOUNDS.map_items))
        if took > 2 * self._target_s or factor < 1 / 2:
            self.size = min(self.size, size)
        else:
            self.size = max(self.size, size)

    def _by_time(self, items: int, took: float) -> float:
        """Return how many times more (or less) items would take the wanted time."""
        if took > 2 * self._target_s:
            return self._target_s / took
        growing = self._growing_part(items, took)
        worth = WORTH_S * items / growing if growing else BOUNDS.map_items
        self._worth_sharing = int(min(worth, BOUNDS.map_items))
        wanted = self._target_s / growing if growing else GROWTH
        allowed = self._budget_s / took if took else GROWTH
        return min(GROWTH, max(1.0, min(wanted, allowed)))

    def _growing_part(self, items: int, took: float) -> float:
        """Return what of `took` grows with the items, s: a start costs as much alone.

        Seen by a chunk of another size; without one, all of it.
        """
        known = self._smallest
        if known is None or (items, took) < known:
            self._smallest = (items, took)
        if known is None or items < 2 * known[0]:
            return took
        return max(0.0, took - known[1]) * items / (items - known[0])


def _by_bytes(cost: ChunkCost) -> float:
    """Return how many times more (or less) items would take the wanted bytes."""
    most = max(cost.sent_bytes, cost.answer_bytes)
    return CHUNK_BYTES / most if most else float("inf")
