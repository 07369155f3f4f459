"""Compare tiles as stored with what the leaves say they must be. No I/O of its own.

Memory stays at a few tiles for any size: what is stored is asked place by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stoilo.audit.format.merkle import HASH_BYTES
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    Tile,
    TileBuilder,
    render_tile_path,
    tile_at,
)
from stoilo.core.errors import TrustError


class TileScrub:
    """Takes a log's leaves in order and checks every tile as it becomes known.

    Args:
        read: tile → bytes as stored, None when absent. Hostile.
        required: size of the checkpoint whose tiles must all be there.
        partials: full tile → widths of the partial tiles stored at its place, which are
            checked although nothing requires them; nothing where that cannot be known.
    """

    def __init__(
        self,
        read: Callable[[Tile], bytes | None],
        required: int,
        partials: Callable[[Tile], Iterable[int]] = lambda _: (),
    ) -> None:
        self._read = read
        self._required = required
        self._partials = partials
        self._builder = TileBuilder()
        self.checked = 0

    @property
    def size(self) -> int:
        """Leaves taken so far."""
        return self._builder.size

    @property
    def builder(self) -> TileBuilder:
        """The tree of the leaves taken so far."""
        return self._builder

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Take the next leaves and check the tiles that became full by them.

        Raises:
            TrustError: ``STO-L031`` for a missing tile, ``STO-L032`` for a wrong one.
        """
        for tile, data in self._builder.extend(leaves):
            self._check_place(tile, data)

    def finish(self) -> None:
        """Check the right edge; raises as `extend`."""
        for tile, data in self._builder.partial():
            self._check_place(tile, data)

    def _check_place(self, tile: Tile, data: bytes) -> None:
        """Check the tile at one place in every width that is required or stored."""
        seen = set()
        for width in sorted({*self._partials(tile.full), tile.width}):
            if width > tile.width:  # a writer went on meanwhile
                continue
            present = self._read(Tile(tile.level, tile.index, width))
            if present is not None:
                self._compare(Tile(tile.level, tile.index, width), present, data)
                seen.add(width)
        wanted = tile_at(tile.level, tile.index, self._required)
        if wanted.width > 0 and wanted.width not in seen:
            self._check_required(wanted, data)

    def _check_required(self, wanted: Tile, data: bytes) -> None:
        present = self._read(wanted)
        if present is not None:
            self._compare(wanted, present, data)
            return
        full = self._read(wanted.full)  # partial ones may go once the full one is there
        if full is None:
            raise TrustError("STO-L031", f"{render_tile_path(wanted)} is missing")
        expected = _prefix(wanted, data)
        self._compare(wanted, full[: len(expected)], data)

    def _compare(self, tile: Tile, present: bytes, data: bytes) -> None:
        self.checked += 1
        if present != _prefix(tile, data):
            raise TrustError(
                "STO-L032", f"{render_tile_path(tile)} does not hold what the log says"
            )


def _prefix(tile: Tile, data: bytes) -> bytes:
    """Return the first `tile.width` hashes or entries of a tile's bytes."""
    if tile.width == TILE_WIDTH:
        return data
    if tile.level != ENTRIES:
        return data[: tile.width * HASH_BYTES]
    at = 0
    for _ in range(tile.width):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return data[:at]
