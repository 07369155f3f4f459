"""Which leaf hash lies where: the index that makes a repeated append find its leaf.

Hashes are random keys: an index over them would dirty one page a leaf in every flush.
So the places of the newest leaves are kept in memory. When there are enough of them
they are sorted and moved into the table slice by slice, so that neighbours share pages
and no append waits long. The moves need no flush of their own: after a crash the newest
places are read back from the leaves.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from stoilo.audit.merkle import leaf_hash, leaf_hashes
from stoilo.audit.sqlite import insert_rows, transaction, unflushed
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["PlaceIndex"]

_QUERY_HASHES = 500
_TAIL_LEAVES = 32_768  # places in memory before they are moved: about 6 MiB
_SLICE_LEAVES = 512  # least moved at a time
_READ_LEAVES = 256  # leaves read at a time to find their places again: at most 16 MiB


class PlaceIndex:
    """The places of a log's leaves; used by the one writer.

    Args:
        connect: the writer's connection; tables ``places`` and ``state`` exist.
        leaves: reads leaves [start, end).
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        leaves: Callable[[int, int], list[bytes]],
    ) -> None:
        self._connect = connect
        self._leaves = leaves
        self._tail: dict[bytes, int] | None = None
        self._moving: dict[bytes, int] = {}
        self._slices: list[
            tuple[bytes, int]
        ] = []  # of `_moving`, sorted, not yet moved
        self._arrived = 0

    def find(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the places of those leaf hashes that are in the log.

        Raises:
            TrustError: ``STO-L049`` when the index points to another leaf.
        """
        found: dict[bytes, int] = {}
        for places in (self._load_tail(), self._moving):
            found.update((one, places[one]) for one in hashes if one in places)
        rest = [one for one in hashes if one not in found]
        for at in range(0, len(rest), _QUERY_HASHES):
            found.update(self._look_up(rest[at : at + _QUERY_HASHES]))
        return found

    def _look_up(self, hashes: Sequence[bytes]) -> Iterable[tuple[bytes, int]]:
        """Return what the table says, each place checked against its leaf."""
        marks = ",".join("?" * len(hashes))
        query = f"SELECT hash, idx FROM places WHERE hash IN ({marks})"  # noqa: S608
        rows: list[tuple[bytes, int]] = (
            self._connect().execute(query, hashes).fetchall()
        )
        for digest, index in rows:
            if [leaf_hash(one) for one in self._leaves(index, index + 1)] != [digest]:
                raise TrustError("STO-L049", "the log database's index is wrong")
        return rows

    def _load_tail(self) -> dict[bytes, int]:
        """Return the places that the table does not have; after a start, from the leaves."""
        if self._tail is None:
            query = "SELECT indexed, size FROM state"
            indexed, size = self._connect().execute(query).fetchone()
            tail: dict[bytes, int] = {}
            for start in range(indexed, size, _READ_LEAVES):
                leaves = self._leaves(start, min(start + _READ_LEAVES, size))
                tail.update(zip(leaf_hashes(leaves), itertools.count(start)))
            self._tail = tail
        return self._tail

    def add(self, places: Sequence[tuple[bytes, int]]) -> None:
        """Take the places of leaves that are committed."""
        self._load_tail().update(places)
        self._arrived += len(places)

    def move(self) -> None:
        """Move some of the newest places into the table, when there are enough of them.

        A call moves twice as many as arrived since the last one, so memory is bounded.

        Raises:
            sqlite3.Error: nothing of this slice was moved.
        """
        tail, arrived = self._load_tail(), self._arrived
        self._arrived = 0
        if not self._slices and len(tail) >= _TAIL_LEAVES:
            self._slices = sorted(tail.items(), reverse=True)
            self._moving, self._tail = tail, {}
        if not self._slices:
            return
        count = max(_SLICE_LEAVES, 2 * arrived)
        part, is_last = self._slices[-count:], len(self._slices) <= count
        connection = self._connect()
        with unflushed(connection), transaction(connection):
            insert_rows(connection, "INSERT OR REPLACE INTO places", part)
            if is_last:
                done = max(self._moving.values()) + 1
                connection.execute("UPDATE state SET indexed = ?", (done,))
        del self._slices[-count:]
        if is_last:
            self._moving = {}
