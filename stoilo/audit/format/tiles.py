"""Tiles: how a log lies on a disk or web server (c2sp.org/tlog-tiles v0.1.0). Pure.

A tile holds 256 hashes (8192 bytes); level 0 are leaf hashes, each higher level the
roots of full tiles below. Entry bundles hold the leaves themselves. The rightmost tiles
are partial and are named by their width; every name is immutable.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stoilo.audit.format.merkle import (
    HASH_BYTES,
    Frontier,
    NodeReader,
    leaf_hashes,
    node_hash,
    perfect_roots,
    range_root,
    root,
)
from stoilo.audit.format.proof import MAX_LEAF_BYTES
from stoilo.core.errors import TrustError

TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
ENTRIES = -1  # the level of entry bundles
MAX_BUNDLE_BYTES = TILE_WIDTH * (MAX_LEAF_BYTES + 2)

_PATH = re.compile(
    r"tile/(entries|[0-7])/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """The name of one tile."""

    level: int  # 0…7, or `ENTRIES` for a bundle of leaves
    index: int  # place in its level, from 0
    width: int = TILE_WIDTH  # 1…256 hashes or entries; 256 is full

    @property
    def full(self) -> Tile:
        """The full tile at the same place."""
        return Tile(self.level, self.index)

    @property
    def max_bytes(self) -> int:
        """The most bytes such a tile can have."""
        if self.level == ENTRIES:
            return self.width * (MAX_LEAF_BYTES + 2)
        return self.width * HASH_BYTES


def render_tile_path(tile: Tile) -> str:
    """Return the tile's path below the log's prefix, as ``tile/0/x001/067``."""
    level = "entries" if tile.level == ENTRIES else str(tile.level)
    groups = [f"{tile.index % 1000:03}"]
    rest = tile.index // 1000
    while rest:
        groups.insert(0, f"x{rest % 1000:03}")
        rest //= 1000
    suffix = "" if tile.width == TILE_WIDTH else f".p/{tile.width}"
    return f"tile/{level}/{'/'.join(groups)}{suffix}"


def parse_tile_path(path: str) -> Tile:
    """Return the tile that `path` names; raises ``STO-L010`` unless it is canonical."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise TrustError("STO-L010", f"not a tile's name: {path[:80]!r}")
    level, groups, width = match.groups()
    tile = Tile(
        level=ENTRIES if level == "entries" else int(level),
        index=int(groups.replace("/", "").replace("x", "")),
        width=int(width or TILE_WIDTH),
    )
    # One name a tile: two names could be served with other bytes.
    if render_tile_path(tile) != path:
        raise TrustError("STO-L010", f"not a canonical tile name: {path[:80]!r}")
    return tile


def tile_at(level: int, index: int, size: int) -> Tile:
    """Return tile `index` of `level` as wide as a log of `size` leaves has it."""
    hashes = size >> (TILE_HEIGHT * max(level, 0))
    return Tile(level, index, min(hashes - index * TILE_WIDTH, TILE_WIDTH))


def is_within(tile: Tile, size: int) -> bool:
    """Return whether a log of `size` leaves has (or had) such a tile."""
    return tile.width <= tile_at(tile.level, tile.index, size).width


def encode_bundle(entries: list[bytes]) -> bytes:
    """Return leaves with their lengths as big-endian 16 bits before each."""
    return b"".join([len(entry).to_bytes(2, "big") + entry for entry in entries])


def split_bundle(data: bytes, most: int = TILE_WIDTH) -> tuple[list[bytes], bytes]:
    """Return up to `most` entries of a hostile bundle, and the bytes after them."""
    entries: list[bytes] = []
    at = 0
    while len(entries) < most:
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            break
        entries.append(data[at + 2 : end])
        at = end
    return entries, data[at:]


def decode_bundle(data: bytes, width: int) -> list[bytes]:
    """Return exactly `width` leaves of a hostile bundle; raises ``STO-L010``.

    A longer bundle (the full one, read in a partial one's stead) gives its first ones.
    """
    entries, _ = split_bundle(data, width)
    if len(entries) < width:
        raise TrustError("STO-L010", "an entry bundle ends before its entries do")
    return entries


class BlockTree:
    """The tree above full blocks of 256 leaf hashes, and the tiles that it consists of.

    It knows only the right edge, so memory stays at a few tiles for any size.
    """

    def __init__(self) -> None:
        self.blocks = 0
        self._levels: list[list[bytes]] = []  # from tile level 1 up

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

    def frontier(self, rest: Sequence[bytes]) -> Frontier:
        """Return the right edge of all blocks taken and the leaf hashes `rest` (< 256)."""
        roots: list[bytes] = []
        for hashes in reversed(self._levels):
            roots += perfect_roots(hashes)
        size = self.blocks * TILE_WIDTH + len(rest)
        return Frontier(size, (*roots, *perfect_roots(rest)))

    def copy(self) -> BlockTree:
        """Return the same tree, which grows apart from this one."""
        other = BlockTree()
        other.blocks = self.blocks
        other._levels = [list(hashes) for hashes in self._levels]
        return other


class TileBuilder:
    """Grows a log leaf by leaf and says which tiles it consists of; no I/O.

    Its root is computed from tiles alone, independently of the sequencer's frontier.
    """

    def __init__(
        self,
        above: BlockTree | None = None,  # full blocks that it begins after
    ) -> None:
        self._above = above or BlockTree()
        self.size = self._above.blocks * TILE_WIDTH
        self._entries: list[bytes] = []
        self._hashes: list[bytes] = []

    def extend(self, leaves: Sequence[bytes]) -> list[tuple[Tile, bytes]]:
        """Append leaves, a tile at a time; returns the tiles that became full by them."""
        done: list[tuple[Tile, bytes]] = []
        at = 0
        while at < len(leaves):
            part = leaves[at : at + TILE_WIDTH - len(self._entries)]
            self._entries += part
            self._hashes += leaf_hashes(part)
            self.size += len(part)
            at += len(part)
            if self.size % TILE_WIDTH == 0:
                done += [*self._block(), *self._above.add(root(self._hashes))]
                self._entries, self._hashes = [], []
        return done

    def partial(self) -> list[tuple[Tile, bytes]]:
        """Return the partial tiles of the present size."""
        return [*(self._block() if self._entries else ()), *self._above.partial()]

    def _block(self) -> list[tuple[Tile, bytes]]:
        """Return the bundle and the tile of the last leaves."""
        index, width = self._above.blocks, len(self._entries)
        return [
            (Tile(ENTRIES, index, width), encode_bundle(self._entries)),
            (Tile(0, index, width), b"".join(self._hashes)),
        ]

    def frontier(self) -> Frontier:
        """Return the right edge of the present tree."""
        return self._above.frontier(self._hashes)

    def root(self) -> bytes:
        """Return the root of the present tree."""
        return self.frontier().root()


_CACHED_TILES = 128  # about 35 KiB each


class TileNodes:
    """Serves perfect subtree roots from tiles; thread-safe."""

    def __init__(
        self,
        # tile → bytes, None when absent. Hostile: readers check the proofs.
        read: Callable[[Tile], bytes | None],
    ) -> None:
        self._read = read
        self._guard = threading.Lock()
        self._cache: OrderedDict[Tile, list[list[bytes]]] = OrderedDict()

    def node(self, level: int, index: int, size: int) -> bytes:
        """Return one node of the tree of `size` leaves.

        Raises:
            TrustError: ``STO-L032`` when the tile that holds it is missing or short.
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
        # The publisher drops partial tiles once the full one is there.
        if data is None and tile.width < TILE_WIDTH:
            data = self._read(tile.full)
        if data is None or len(data) < tile.width * HASH_BYTES:
            raise TrustError(
                "STO-L032", f"{render_tile_path(tile)} is missing or short"
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
