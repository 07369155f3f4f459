"""Read tree nodes out of tiles, with a small cache: the way proofs are made."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

from stoilo.audit.merkle import HASH_BYTES, node_hash, range_root
from stoilo.audit.tiles import TILE_HEIGHT, TILE_WIDTH, Tile, render_tile_path, tile_at
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stoilo.audit.merkle import NodeReader

__all__ = ["TileNodes", "inclusion_proofs"]

_CACHED_TILES = 128  # about 35 KiB each


class TileNodes:
    """Serves perfect subtree roots from tiles; thread-safe.

    Args:
        read: tile → bytes, None when absent. Hostile: readers check the proofs.
    """

    def __init__(self, read: Callable[[Tile], bytes | None]) -> None:
        self._read = read
        self._guard = threading.Lock()
        self._cache: OrderedDict[Tile, list[list[bytes]]] = OrderedDict()

    def node(self, level: int, index: int, size: int) -> bytes:
        """Return one node of the tree of `size` leaves.

        Raises:
            TrustError: ``STO-L031`` when the tile that holds it is missing or short.
        """
        tile_level, height = divmod(level, TILE_HEIGHT)
        per_tile = TILE_HEIGHT - height
        tile = tile_at(tile_level, index >> per_tile, size)
        place = index & ((1 << per_tile) - 1)
        return self._levels(tile)[height][place]

    def _levels(self, tile: Tile) -> list[list[bytes]]:
        with self._guard:
            if tile in self._cache:
                self._cache.move_to_end(tile)
                return self._cache[tile]
        levels = _grow(self._load(tile))
        with self._guard:
            self._cache[tile] = levels
            while len(self._cache) > _CACHED_TILES:
                self._cache.popitem(last=False)
        return levels

    def _load(self, tile: Tile) -> bytes:
        data = self._read(tile)
        if data is None and tile.width < TILE_WIDTH:
            data = self._read(tile.full)
        if data is None or len(data) < tile.width * HASH_BYTES:
            raise TrustError(
                "STO-L031", f"{render_tile_path(tile)} is missing or short"
            )
        return data[: tile.width * HASH_BYTES]


def _grow(data: bytes) -> list[list[bytes]]:
    """Return the tile's hashes and the perfect levels above them."""
    pieces = range(0, len(data), HASH_BYTES)
    levels = [[data[at : at + HASH_BYTES] for at in pieces]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = range(0, len(below) - 1, 2)
        levels.append([node_hash(below[at], below[at + 1]) for at in pairs])
    return levels


def inclusion_proofs(
    indices: Iterable[int], size: int, node: NodeReader
) -> dict[int, list[bytes]]:
    """Return the proof of each of many leaves; what they share is computed once.

    Raises:
        TrustError: ``STO-L023`` when the tree has no such leaf.
    """
    wanted = sorted(set(indices))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < size:
        raise TrustError(
            "STO-L023", f"a tree of {size} leaves lacks some of these leaves"
        )
    paths: dict[int, list[bytes]] = {index: [] for index in wanted}
    ranges = [(0, size, wanted)] if wanted else []
    while ranges:
        start, end, inside = ranges.pop()
        if end - start == 1:
            continue
        middle = start + (1 << ((end - start - 1).bit_length() - 1))
        cut = bisect_left(inside, middle)
        for part, below, other in (
            (inside[:cut], (start, middle), (middle, end)),
            (inside[cut:], (middle, end), (start, middle)),
        ):
            if part:
                sibling = range_root(*other, node)
                for index in part:
                    paths[index].append(sibling)
                ranges.append((*below, part))
    for path in paths.values():
        path.reverse()
    return paths
