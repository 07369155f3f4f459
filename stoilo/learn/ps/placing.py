"""Every key to the shards that should keep it, and to no other.

Done before a server serves: when the number of shards or of copies has changed, when a
shard's file is gone, when a crash left a push on one copy and not on another. Cells are
given before they are forgotten, so that a crash leaves one too many, never none; the next
opening goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from stoilo.learn.ps.keeper import Keeper
from stoilo.learn.ps.ring import Ring
from stoilo.learn.ps.shards import Cell

__all__ = ["settle"]

_AT_ONCE = 64
"""Keys in memory at a time."""


def settle(
    shards: Mapping[str, Keeper], leaving: Mapping[str, Keeper], ring: Ring, copies: int
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
    every: Mapping[str, Keeper],
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
        best = max(found, key=lambda cell: cell.version)
        for name in owners:
            has = cells[name].get(key)
            if has is None or (has.version, has.marks) != (best.version, best.marks):
                given.setdefault(name, {})[key] = best
    for name, part in given.items():
        every[name].accept(part)


def _chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk
