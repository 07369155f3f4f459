"""A consistent-hash ring: which shard keeps which key.

Each shard stands at many points of a circle of 2^64 (SHA-256 of its name and a number); a
key belongs to the next point clockwise. When a shard comes or goes, only about ``1/n`` of
the keys move, and none between two shards that stay. Source: Karger et al. 1997.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from stoilo.core.errors import UsageError
from stoilo.learn.store.shards import Cell, Shard


POINTS = 128  # points of each shard: with 100 and more, loads differ by about a tenth


def _place(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Ring:
    """Shards by name; the same names give the same ring, in any order.

    Attributes:
        shards: their names, sorted.
        points: how often each stands on the circle.
    """

    shards: tuple[str, ...]
    points: int = POINTS
    _places: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _owners: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.shards or len(set(self.shards)) != len(self.shards):
            raise UsageError("STO-T067", "a ring needs shards with different names")
        object.__setattr__(self, "shards", tuple(sorted(self.shards)))
        marks = sorted(
            (_place(f"{shard}#{index}"), shard)
            for shard in self.shards
            for index in range(self.points)
        )
        object.__setattr__(self, "_places", tuple(place for place, _ in marks))
        object.__setattr__(self, "_owners", tuple(shard for _, shard in marks))

    def owner(self, key: str) -> str:
        """Return the name of the shard that keeps `key`."""
        index = bisect.bisect_right(self._places, _place(key))
        return self._owners[index % len(self._owners)]

    def owners(self, key: str, copies: int = 1) -> tuple[str, ...]:
        """Return the shards that keep copies of `key`: the next ones clockwise."""
        if copies == 1:
            return (self.owner(key),)
        start = bisect.bisect_right(self._places, _place(key))
        found: dict[str, None] = {}
        for step in range(len(self._owners)):
            found[self._owners[(start + step) % len(self._owners)]] = None
            if len(found) == min(copies, len(self.shards)):
                break
        return tuple(found)

    def group(self, keys: Iterable[str], copies: int = 1) -> dict[str, list[str]]:
        """Return the keys by the shards that keep them, in the order given."""
        found: dict[str, list[str]] = {}
        for key in keys:
            for owner in self.owners(key, copies):
                found.setdefault(owner, []).append(key)
        return found


_AT_ONCE = 64  # keys in memory at a time


def settle(
    shards: Mapping[str, Shard], leaving: Mapping[str, Shard], ring: Ring, copies: int
) -> None:
    """Put every cell of `shards` and `leaving` where `ring` says, in so many copies.

    Of copies that differ the one with most updates is taken: what was acknowledged is in
    all of them.
    """
    every = {**shards, **leaving}
    held = {name: frozenset(shard.list_keys()) for name, shard in every.items()}
    keys = sorted(frozenset().union(*held.values()))
    misplaced = [key for key in keys if _is_misplaced(key, held, ring, copies)]
    for chunk in _chunks(misplaced):
        _give(chunk, every, held, ring, copies)
    for name, shard in every.items():
        owned = held[name] if name in shards else frozenset[str]()
        kept = {key for key in owned if name in ring.owners(key, copies)}
        if gone := held[name] - kept:
            shard.drop(gone)


def _is_misplaced(
    key: str, held: Mapping[str, frozenset[str]], ring: Ring, copies: int
) -> bool:
    """Return whether a key is not where it should be; copies are always compared."""
    owners = ring.owners(key, copies)
    return len(owners) > 1 or any(key not in held[name] for name in owners)


def _give(
    keys: Sequence[str],
    every: Mapping[str, Shard],
    held: Mapping[str, frozenset[str]],
    ring: Ring,
    copies: int,
) -> None:
    cells = {
        name: shard.read([key for key in keys if key in held[name]])
        for name, shard in every.items()
    }
    given: dict[str, dict[str, Cell]] = {}
    for key in keys:
        owners = ring.owners(key, copies)
        there = [name for name in owners if key in held[name]]
        found = [cells[n][key] for n in there or every if key in held[n]]
        # Acknowledged pushes are in all copies: the most updates are the whole truth.
        best = max(found, key=lambda cell: cell.version)
        for name in owners:
            has = cells[name].get(key)
            if has is None or (has.version, has.marks) != (best.version, best.marks):
                given.setdefault(name, {})[key] = best
    for name, part in given.items():
        # Given before anything is dropped: a crash leaves one too many, never none.
        every[name].accept(part)


def _chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk
