"""A whole Merkle tree in memory, as tests ask it for any node."""

from __future__ import annotations

from collections.abc import Iterable

from stoilo.audit.format.merkle import node_hash
from stoilo.audit.format.tiles import ENTRIES, TILE_WIDTH, Tile


class MemoryTree:
    """A whole tree in memory, for batches and tests; `node` is its `NodeReader`."""

    def __init__(self, leaf_hashes: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        for item in leaf_hashes:
            self.append(item)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._levels[0])

    def append(self, leaf: bytes) -> int:
        """Add one leaf hash and return its index."""
        self._levels[0].append(leaf)
        level = 0
        while len(self._levels[level]) % 2 == 0:
            if len(self._levels) == level + 1:
                self._levels.append([])
            left, right = self._levels[level][-2:]
            self._levels[level + 1].append(node_hash(left, right))
            level += 1
        return self.size - 1

    def node(self, level: int, index: int) -> bytes:
        """Return the root of one perfect subtree."""
        return self._levels[level][index]


def tiles_of(size: int) -> list[Tile]:
    """Return every tile that a checkpoint of `size` leaves demands, by arithmetic."""
    tiles = []
    for level in range(ENTRIES, 8):
        hashes = size >> (8 * max(level, 0))
        for index in range(-(-hashes // TILE_WIDTH)):
            width = min(hashes - index * TILE_WIDTH, TILE_WIDTH)
            tiles.append(Tile(level, index, width))
    return tiles
