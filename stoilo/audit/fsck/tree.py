"""Build the tree again, block by block, from whatever copies of the leaves are left.

Each block's leaf hashes are settled among database, entry bundle and tile; then every
stored file of that place is compared with what was settled, and every recorded root
with the tree at its size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.fsck.blocks import (
    Hashes,
    HashTree,
    Settled,
    read_bundle,
    settle,
    split_hashes,
)
from stoilo.audit.merkle import HASH_BYTES, leaf_hash, root
from stoilo.audit.tiles import ENTRIES, TILE_WIDTH, Tile, encode_bundle, tile_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stoilo.audit.fsck.leaves import LeafRows
    from stoilo.audit.fsck.parts import LogParts

__all__ = ["TreeCheck", "TreeResult"]

_NAMED = 8  # leaves named one by one in a block, the others are counted


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What the walk over all leaves gave.

    Attributes:
        roots: size → root derived; None where copies were missing.
        frontier: the frontier at the end, None when it is not known.
        damaged: places of leaves whose database row is wrong or missing.
    """

    roots: dict[int, bytes | None]
    frontier: tuple[bytes, ...] | None
    damaged: frozenset[int]


class TreeCheck:
    """One walk; use `run`.

    Args:
        parts: the log.
        stored: the tiles that lie on the disk.
        rows: the log database's leaves, None when there is none.
        committed: how many leaves the log database should hold.
        published: size of the checkpoint whose tiles must all be there.
        signed_root: its root, when its signature verified.
        stops: sizes at which a root is recorded somewhere.
    """

    def __init__(
        self,
        parts: LogParts,
        stored: Iterable[Tile],
        rows: LeafRows | None,
        committed: int,
        published: int,
        signed_root: bytes | None,
        stops: Iterable[int],
    ) -> None:
        self._parts = parts
        self._found = parts.found
        self._rows = rows
        self._committed = committed
        self._published = published
        self._signed_root = signed_root
        self._size = max(committed, published)
        self._stops = {stop for stop in stops if 0 < stop <= self._size}
        self._tree = HashTree()
        self._is_known = True
        self._roots: dict[int, bytes | None] = {}
        self._damaged: set[int] = set()
        self._above: tuple[Tile, Hashes] | None = None
        self._stored: dict[Tile, list[int]] = defaultdict(list)
        for tile in stored:
            self._stored[tile.full].append(tile.width)

    def run(self) -> TreeResult:
        """Walk over all leaves and report what does not fit."""
        rest: list[bytes] | None = []
        for index in range(-(-self._size // TILE_WIDTH)):
            width = min(TILE_WIDTH, self._size - index * TILE_WIDTH)
            rest = self._take_block(index, width)
        for tile, data in self._tree.partial():
            self._check_files(tile, split_hashes(data))
        self._report_beyond()
        frontier = None
        if self._is_known and rest is not None:
            frontier = tuple(self._tree.frontier(rest))
        return TreeResult(self._roots, frontier, frozenset(self._damaged))

    def _take_block(self, index: int, width: int) -> list[bytes] | None:
        """Settle and compare one block; return the hashes of a last, partial one."""
        leaves: list[bytes | None] = []
        if self._rows is not None and index * TILE_WIDTH < self._committed:
            held = min(width, self._committed - index * TILE_WIDTH)
            leaves = self._rows.block(index, held)
        settled = self._settle(index, width, leaves)
        self._check_rows(index, leaves, settled)
        self._check_files(Tile(0, index, width), settled.hashes)
        self._check_files(Tile(ENTRIES, index, width), settled.hashes, leaves)
        hashes = settled.complete()
        self._note_roots(index, width, hashes)
        if width < TILE_WIDTH:
            return hashes
        self._grow(index, hashes)
        return []

    def _settle(self, index: int, width: int, leaves: list[bytes | None]) -> Settled:
        mine: Hashes = [None if one is None else leaf_hash(one) for one in leaves]
        copies = [mine]
        for level in (0, ENTRIES):
            data = self._primary(level, index)
            if data is None:
                continue
            if level == 0:
                copies.append(split_hashes(data))
            elif data != _bundle_of(leaves):
                copies.append([leaf_hash(one) for one in read_bundle(data, width)])
            else:
                copies.append(mine)
        return settle(copies, width, lambda one: self._is_right(index, one))

    def _primary(self, level: int, index: int) -> bytes | None:
        """Return the widest stored file of a place that the log can vouch for."""
        place = Tile(level, index)
        widths = [
            one for one in self._stored.get(place, []) if self._is_within(place, one)
        ]
        return (
            self._parts.read_tile(Tile(level, index, max(widths))) if widths else None
        )

    def _is_within(self, place: Tile, width: int) -> bool:
        return width <= tile_at(place.level, place.index, self._size).width

    def _is_right(self, index: int, hashes: list[bytes]) -> bool:
        """Ask the tile above, or the signed root, about a block's hashes."""
        if len(hashes) == TILE_WIDTH and self._parent(index) == root(hashes):
            return True
        rest = self._published - index * TILE_WIDTH
        if not (self._signed_root and self._is_known and 0 < rest <= TILE_WIDTH):
            return False
        return self._tree.root(hashes[:rest]) == self._signed_root

    def _parent(self, index: int) -> bytes | None:
        tile = Tile(1, index // TILE_WIDTH)
        if self._above is None or self._above[0] != tile:
            self._above = (tile, split_hashes(self._primary(1, tile.index) or b""))
        hashes, place = self._above[1], index % TILE_WIDTH
        return hashes[place] if place < len(hashes) else None

    def _note_roots(self, index: int, width: int, hashes: list[bytes] | None) -> None:
        start = index * TILE_WIDTH
        for stop in self._stops:
            if start < stop <= start + width:
                known = self._is_known and hashes is not None
                self._roots[stop] = (
                    self._tree.root(hashes[: stop - start])
                    if known and hashes is not None
                    else None
                )

    def _grow(self, index: int, hashes: list[bytes] | None) -> None:
        above = root(hashes) if hashes is not None else self._parent(index)
        if above is None:  # nothing tells this block's hash any more
            self._is_known = False
            above = bytes(HASH_BYTES)
        for tile, data in self._tree.add(above):
            self._check_files(tile, split_hashes(data))

    # -- comparing ----------------------------------------------------------------

    def _check_rows(
        self, index: int, leaves: Sequence[bytes | None], settled: Settled
    ) -> None:
        if self._rows is None:
            return
        wrong = [
            (place, leaf is None)
            for place, (leaf, right) in enumerate(
                zip(leaves, settled.hashes, strict=False)
            )
            if leaf is None or leaf_hash(leaf) != right
        ]
        first = index * TILE_WIDTH
        self._damaged.update(first + place for place, _ in wrong)
        for place, is_missing in wrong[:_NAMED]:
            self._found.fault(
                "STO-L049" if is_missing else "STO-L093",
                self._rows.file,
                "the row is missing"
                if is_missing
                else f"the row is not the leaf {_confirmed(settled)}",
                place=f"leaf {first + place}",
                remedy=f"restore the newest backup of {self._rows.file}",
            )
        self._count_others(self._rows.file, index, wrong)

    def _count_others(self, file: str, index: int, wrong: Sequence[object]) -> None:
        if len(wrong) > _NAMED:
            self._found.fault(
                "STO-L093",
                file,
                f"{len(wrong) - _NAMED} more leaves here are wrong or missing",
                place=f"leaves {index * TILE_WIDTH} to {(index + 1) * TILE_WIDTH - 1}",
                remedy=f"restore the newest backup of {file}",
            )

    def _check_files(
        self, tile: Tile, hashes: Hashes, leaves: Sequence[bytes | None] = ()
    ) -> None:
        """Compare every stored width of a place, and miss those that must be there."""
        widths = self._stored.get(tile.full, [])
        mine = sorted(width for width in widths if width <= tile.width)
        for width in mine:
            stored = Tile(tile.level, tile.index, width)
            data = self._parts.read_tile(stored)
            if data is not None and not _is_equal(stored, data, hashes, leaves):
                self._report_tile(stored, data, hashes)
        beyond = [width for width in widths if width > tile.width]
        self._stored[tile.full] = beyond
        wanted = tile_at(tile.level, tile.index, self._published)
        if wanted.width > 0 and not {wanted.width, TILE_WIDTH} & set(mine):
            name = self._parts.tile_name(wanted)
            self._found.fault(
                "STO-L031",
                name,
                f"is missing; the checkpoint of {self._published} leaves needs it",
                remedy=_tile_remedy(name, self._rows),
            )

    def _report_tile(self, tile: Tile, data: bytes, hashes: Hashes) -> None:
        name = self._parts.tile_name(tile)
        wrong = list(_wrong_places(tile, data, hashes))
        for place in wrong[:_NAMED]:
            self._found.fault(
                "STO-L032",
                name,
                "is not what the tree was built of",
                place=_place_name(tile, place),
                remedy=_tile_remedy(name, self._rows),
            )
        if len(wrong) > _NAMED:
            self._count_others(name, tile.index, wrong)
        if not wrong:
            self._found.fault(
                "STO-L032",
                name,
                f"has {len(data)} bytes, which is not its length",
                remedy=_tile_remedy(name, self._rows),
            )

    def _report_beyond(self) -> None:
        """Report stored tiles that lie beyond every leaf known."""
        for place in sorted(self._stored):
            for width in sorted(self._stored[place]):
                name = self._parts.tile_name(Tile(place.level, place.index, width))
                if self._parts.paths is None:  # a crash before its checkpoint, perhaps
                    self._found.notice(
                        "STO-L096", name, "lies beyond the published checkpoint"
                    )
                    continue
                self._found.fault(
                    "STO-L047",
                    name,
                    f"lies beyond the {self._size} leaves of the databases",
                    remedy="restore the newest backup of both databases",
                )


def _confirmed(settled: Settled) -> str:
    if settled.is_certain:
        return "that the tree was built of"
    return "that most other copies show; nothing confirms either"


def _bundle_of(leaves: Sequence[bytes | None]) -> bytes | None:
    known = [leaf for leaf in leaves if leaf is not None]
    return encode_bundle(known) if known and len(known) == len(leaves) else None


def _is_equal(
    tile: Tile, data: bytes, hashes: Hashes, leaves: Sequence[bytes | None]
) -> bool:
    """Tell whether a stored tile or bundle holds exactly what was settled."""
    if tile.level != ENTRIES:
        return split_hashes(data) == hashes[: tile.width] and (
            len(data) == tile.width * HASH_BYTES
        )
    known = _bundle_of(leaves[: tile.width])
    if known is not None and known == data and len(leaves) >= tile.width:
        return [leaf_hash(one or b"") for one in leaves[: tile.width]] == hashes[
            : tile.width
        ]
    entries = read_bundle(data, tile.width)
    return encode_bundle(entries) == data and (
        [leaf_hash(one) for one in entries] == hashes[: tile.width]
    )


def _wrong_places(tile: Tile, data: bytes, hashes: Hashes) -> Iterable[int]:
    if tile.level == ENTRIES:
        held: Hashes = [leaf_hash(one) for one in read_bundle(data, tile.width)]
    else:
        held = split_hashes(data)
    for place in range(tile.width):
        if place >= len(held) or held[place] != hashes[place]:
            yield place


def _place_name(tile: Tile, place: int) -> str:
    at = tile.index * TILE_WIDTH + place
    if tile.level <= 0:
        kind = "entry" if tile.level == ENTRIES else "hash"
        return f"{kind} {place} (leaf {at})"
    below = TILE_WIDTH**tile.level
    return f"hash {place} (leaves {at * below} to {(at + 1) * below - 1})"


def _tile_remedy(name: str, rows: LeafRows | None) -> str:
    follows = " (its contents follow from the log database)" if rows else ""
    return f"restore {name} from a backup or a mirror of the log{follows}"
