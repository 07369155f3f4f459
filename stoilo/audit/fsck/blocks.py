"""Which of several copies of the same 256 leaves is right. Pure.

A leaf lies in up to three places: the log database, its entry bundle and, as a hash, in
a tile of level 0. One flipped bit leaves two of them in agreement; where that does not
decide, the tree above a block (or the signed root) says which copy it was made of.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.merkle import HASH_BYTES, join_roots, perfect_roots, root
from stoilo.audit.tiles import TILE_HEIGHT, TILE_WIDTH, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["HashTree", "Settled", "read_bundle", "settle", "split_hashes"]

Hashes = list[bytes | None]
_MIXTURES = 64


@dataclass(frozen=True, slots=True)
class Settled:
    """The leaf hashes of one block.

    Attributes:
        hashes: one for each leaf, None where no copy says anything.
        is_certain: whether all copies agree, or something above confirms the choice.
    """

    hashes: Hashes
    is_certain: bool

    def complete(self) -> list[bytes] | None:
        """Return the hashes when every one is known."""
        known = [one for one in self.hashes if one is not None]
        return known if len(known) == len(self.hashes) else None


def settle(
    copies: Sequence[Hashes],
    width: int,
    is_right: Callable[[list[bytes]], bool] | None = None,
) -> Settled:
    """Choose among copies of a block of `width` leaves.

    Args:
        copies: what each place says, shorter or with None where it says nothing; the
            most trusted first.
        width: 1…256.
        is_right: asks the tree above; None when there is nothing to ask.
    """
    votes = [_votes(copies, place) for place in range(width)]
    most = [_elect(one) for one in votes]
    if all(len(one) == 1 for one in votes):
        return Settled(most, is_certain=True)
    whole = [list(one[:width]) for one in copies]
    for hashes in itertools.chain([most], whole, _mixtures(votes)):
        known = Settled(hashes, is_certain=True).complete()
        if known is None or len(known) != width or is_right is None:
            continue
        if is_right(known):
            return Settled(hashes, is_certain=True)
    return Settled(most, is_certain=False)


def _mixtures(votes: Sequence[Counter[bytes]]) -> Iterator[Hashes]:
    """Yield mixtures of copies that differ in different places, a bounded number."""
    choices: list[Hashes] = [list(one) or [None] for one in votes]
    mixtures = itertools.product(*choices)
    yield from (list(one) for one in itertools.islice(mixtures, _MIXTURES))


def _votes(copies: Sequence[Hashes], place: int) -> Counter[bytes]:
    said = [one[place] for one in copies if place < len(one)]
    return Counter(one for one in said if one is not None)


def _elect(votes: Counter[bytes]) -> bytes | None:
    """Return what most say; the first copy's word when they are even."""
    return votes.most_common(1)[0][0] if votes else None


def split_hashes(data: bytes) -> Hashes:
    """Return the whole hashes in a tile's bytes."""
    whole = len(data) - len(data) % HASH_BYTES
    return [data[at : at + HASH_BYTES] for at in range(0, whole, HASH_BYTES)]


def read_bundle(data: bytes, width: int) -> list[bytes]:
    """Return the leaves of a hostile bundle as far as they can be told apart."""
    entries: list[bytes] = []
    at = 0
    while len(entries) < width:
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            break
        entries.append(data[at + 2 : end])
        at = end
    return entries


class HashTree:
    """The tree above blocks of 256 leaf hashes, and the tiles that it consists of.

    Memory: a few tiles for any size.
    """

    def __init__(self) -> None:
        self.blocks = 0
        self._levels: list[list[bytes]] = []

    def add(self, block_root: bytes) -> list[tuple[Tile, bytes]]:
        """Take the root of the next full block; return the tiles that became full."""
        self.blocks += 1
        done: list[tuple[Tile, bytes]] = []
        carry, level = block_root, 0
        while True:
            if len(self._levels) == level:
                self._levels.append([])
            hashes = self._levels[level]
            hashes.append(carry)
            if len(hashes) < TILE_WIDTH:
                return done
            index = (self.blocks >> (TILE_HEIGHT * (level + 1))) - 1
            done.append((Tile(level + 1, index), b"".join(hashes)))
            carry, level = root(hashes), level + 1
            hashes.clear()

    def partial(self) -> Iterator[tuple[Tile, bytes]]:
        """Yield the partial tiles above the blocks taken so far."""
        for level, hashes in enumerate(self._levels):
            if hashes:
                index = self.blocks >> (TILE_HEIGHT * (level + 1))
                yield Tile(level + 1, index, len(hashes)), b"".join(hashes)

    def frontier(self, rest: Sequence[bytes]) -> list[bytes]:
        """Return the perfect subtrees' roots of all blocks and `rest` (below 256)."""
        roots: list[bytes] = []
        for hashes in reversed(self._levels):
            roots += perfect_roots(hashes)
        return roots + perfect_roots(rest)

    def root(self, rest: Sequence[bytes]) -> bytes:
        """Return the root over all blocks taken and the leaf hashes `rest`."""
        return join_roots(self.frontier(rest))
