"""A consistent-hash ring: which shard keeps which key.

Each shard stands at many points of a circle of 2^64 (SHA-256 of its name and a number); a
key belongs to the next point clockwise. When a shard comes or goes, only about ``1/n`` of
the keys move, and none between two shards that stay. Source: Karger et al. 1997.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from stoilo.core.errors import UsageError

__all__ = ["POINTS", "Ring"]

POINTS = 128
"""Points of each shard: with 100 and more, loads differ by about a tenth."""


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
