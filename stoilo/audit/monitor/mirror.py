"""The hashes of a log as a monitor has derived them himself, in tiles, in his state.

With them he computes the root of every size that was ever signed, long after the server
has stopped to show it, and proves what he says. 33 bytes a leaf on the disk; memory does
not grow with the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.merkle import HASH_BYTES, range_root, root
from stoilo.audit.nodes import TileNodes
from stoilo.audit.tiles import TILE_HEIGHT, TILE_WIDTH
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from stoilo.audit.tiles import Tile

__all__ = ["MIRROR_SCHEMA", "Mirror"]

MIRROR_SCHEMA = """
CREATE TABLE tile (
    level INTEGER NOT NULL, place INTEGER NOT NULL, hashes BLOB NOT NULL,
    PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;
"""
_TILE_BYTES = TILE_WIDTH * HASH_BYTES


class Mirror:
    """Hash tiles in a database; the caller owns the transactions.

    Args:
        connection: where table ``tile`` is.
        size: leaves that it holds.
    """

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self._connection = connection
        self._nodes = TileNodes(self._read)
        self.size = size

    def extend(self, leaf_hashes: Sequence[bytes]) -> None:
        """Append leaf hashes: the right edge is written anew, full tiles once."""
        fresh, level = list(leaf_hashes), 0
        while fresh:
            have = self.size >> (TILE_HEIGHT * level)
            fresh = self._extend_level(level, have, fresh)
            level += 1
        self.size += len(leaf_hashes)

    def _extend_level(self, level: int, have: int, fresh: list[bytes]) -> list[bytes]:
        """Append to one level; return the hashes that the level above gains."""
        place, width = divmod(have, TILE_WIDTH)
        tile = self._row(level, place)[: width * HASH_BYTES] if width else b""
        above: list[bytes] = []
        for start in range(-width, len(fresh), TILE_WIDTH):
            tile += b"".join(fresh[max(start, 0) : start + TILE_WIDTH])
            self._connection.execute(
                "INSERT OR REPLACE INTO tile VALUES (?, ?, ?)", (level, place, tile)
            )
            if len(tile) == _TILE_BYTES:
                pieces = range(0, _TILE_BYTES, HASH_BYTES)
                above.append(root([tile[at : at + HASH_BYTES] for at in pieces]))
            place, tile = place + 1, b""
        return above

    def node(self, level: int, index: int) -> bytes:
        """Return the root of one perfect subtree; raises ``STO-L124`` if damaged."""
        try:
            return self._nodes.node(level, index, self.size)
        except (TrustError, IndexError) as error:
            raise TrustError(
                "STO-L124", f"the state's hashes at level {level}, {index} are gone"
            ) from error

    def leaf_hash(self, index: int) -> bytes:
        """Return the hash of one leaf."""
        return self.node(0, index)

    def root_at(self, size: int) -> bytes:
        """Return the root that the log had with its first `size` leaves."""
        return range_root(0, size, self.node)

    def forget_cache(self) -> None:
        """Read tiles again; to be called after a transaction was rolled back."""
        self._nodes = TileNodes(self._read)

    def _read(self, tile: Tile) -> bytes:
        return self._row(tile.level, tile.index)

    def _row(self, level: int, place: int) -> bytes:
        query = "SELECT hashes FROM tile WHERE level = ? AND place = ?"
        row = self._connection.execute(query, (level, place)).fetchone()
        return b"" if row is None else bytes(row[0])
