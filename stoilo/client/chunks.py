"""Chunks of a map: how many items the next one gets, and which were sent before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stoilo.client.session import Journal, append_row
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.core.types import BOUNDS, Redundancy

FIRST_ITEMS: Final = 8
TARGET_S: Final = 8.0  # Wanted computing time of one chunk, s

# Items that compute for less are not divided among several hosts at the end: each would
# wait longer than that
WORTH_S: Final = 2.0

WINDOW: Final = 6  # Chunks in flight

GROWTH: Final = 64  # A chunk is at most so many times larger than one that came back

# Wanted at most in the arguments of a chunk, and in its answer, bytes
CHUNK_BYTES: Final = BOUNDS.inline_arguments_bytes // 2

# The least that a level allows a run which states no limits, s.
DEFAULT_CPU_S: Final = 60
DEFAULT_WALL_S: Final = 120

# Of the time that a host has for a copy: hosts are slower than others, and wait
DEADLINE_SHARE: Final = 0.1


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


# What comes back to a map after its process died -----------------------------------------

_KEY = re.compile(r"[A-Za-z0-9._:-]{1,52}")  # a chunk's key is this and its number


@dataclass(slots=True)
class SentChunk:
    """One task of a map: the items that travel in it, and what is known of it."""

    items: list[int]
    again: bool = False  # whether they were sent before and came to nothing
    task_id: str = ""  # empty: nobody heard whether the server has it


@dataclass
class MapRecord:
    """Which items of one map travel in which task, in a file beside the journal.

    One JSON object a line, on disk before the task is sent: the same chunk under the same
    key is the same task, whoever sends it, so nothing is computed twice. No source, no
    data. A line that does not parse is left out.
    """

    key: str
    path: Path
    total: int = 0  # items of the map; 0: none was sent under this key
    chunks: dict[int, SentChunk] = field(default_factory=dict)

    @classmethod
    def open(cls, journal: Journal, target: str, key: str) -> MapRecord:
        """Return what this user of this machine sent to `target` as the map `key`."""
        if journal.path is None or not _KEY.fullmatch(key):
            form = "a map's key is 1 to 52 of A-Z a-z 0-9 . _ : - and needs a journal"
            raise UsageError("STO-C042", form)
        name = content_digest(f"{target}\0{key}".encode())[:32]
        record = cls(key, journal.path.parent / "maps" / f"{name}.jsonl")
        if record.path.exists():
            for line in record.path.read_text("utf-8", "replace").splitlines():
                record._read(line)
        return record

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
            if "of" in row:
                self.total = int(row["of"])
            elif "items" in row:
                chunk = SentChunk(list(_items(row["items"])), bool(row.get("again")))
                self.chunks[int(row["n"])] = chunk
            else:
                self.chunks[int(row["n"])].task_id = str(row["task"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # torn by a kill, or a newer version's

    def begin(self, total: int) -> None:
        """Note the map's size; raises ``STO-C042`` when it had another."""
        if self.total and self.total != total:
            raise self.other_map(f"it has {self.total} items, not {total}")
        if not self.total:
            self.total = total
            append_row(self.path, {"of": total})

    def other_map(self, why: str) -> UsageError:
        """Return the error of a key that was used for another map."""
        message = f"the key {self.key!r} is another map's: {why}"
        return UsageError("STO-C042", message, hint="give each map a key of its own")

    def add(self, items: list[int], *, again: bool) -> int:
        """Note a chunk that is about to be sent; return its number."""
        number = max(self.chunks, default=-1) + 1
        self.chunks[number] = SentChunk(items, again)
        append_row(self.path, {"n": number, "items": _ranges(items), "again": again})
        return number

    def note_task(self, number: int, task_id: str) -> None:
        """Note the task of a chunk."""
        if self.chunks[number].task_id != task_id:
            self.chunks[number].task_id = task_id
            append_row(self.path, {"n": number, "task": task_id})

    def homes(self) -> dict[int, int]:
        """Return of each item that was sent in which chunk its outcome is: the last."""
        return {item: n for n in sorted(self.chunks) for item in self.chunks[n].items}


def _ranges(items: Iterable[int]) -> str:
    """Return increasing numbers as ``0-7,9``."""
    found: list[list[int]] = []
    for item in items:
        if found and item == found[-1][1] + 1:
            found[-1][1] = item
        else:
            found.append([item, item])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in found)


def _items(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@dataclass(frozen=True, slots=True)
class MapProgress:
    """Counts of items: all, sent at least once, finished, and tasks used."""

    total: int
    sent: int
    done: int
    tasks: int

    def __str__(self) -> str:
        """Return the counts as one line."""
        return (
            f"{self.done} of {self.total} done, {self.sent} sent in {self.tasks} tasks"
        )
