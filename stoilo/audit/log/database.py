"""The log database: every leaf in order, the frontier, and private labels.

Labels (task ids) are a side index for the log's own operator: they find a leaf by the
task it belongs to, are in no leaf and are never published.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    Frontier,
    leaf_hash,
    leaf_hashes,
)
from stoilo.audit.log.sqlite import (
    connect,
    damaged,
    insert_rows,
    transaction,
    unflushed,
)
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import sync_directory

_QUERY_HASHES = 500
_TAIL_LEAVES = 32_768  # places in memory before they are moved: about 6 MiB
_SLICE_LEAVES = 512  # least moved at a time
_READ_LEAVES = 256  # leaves read at a time to find their places again: at most 16 MiB


class PlaceIndex:
    """The places of a log's leaves; used by the one writer."""

    def __init__(
        self,
        # the writer's connection; tables ``places`` and ``state`` exist
        connect: Callable[[], sqlite3.Connection],
        leaves: Callable[[int, int], list[bytes]],  # reads leaves [start, end)
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


SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leaves (
        idx INTEGER PRIMARY KEY,
        leaf BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS places (
        hash BLOB PRIMARY KEY,
        idx INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS labels (
        label TEXT NOT NULL,
        idx INTEGER NOT NULL,
        sum INTEGER,
        PRIMARY KEY (label, idx)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS state (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        origin TEXT NOT NULL,
        size INTEGER NOT NULL,
        root BLOB NOT NULL,
        frontier BLOB NOT NULL,
        indexed INTEGER NOT NULL
    ) STRICT""",
)
_CACHE_KIB = 65_536
_CHECKPOINT_PAGES = 4096  # 16 MiB: seldom, for it holds up one batch


@dataclass(frozen=True, slots=True)
class LogState:
    """The newest committed state: origin, frontier and the root stored beside it."""

    origin: str
    frontier: Frontier
    root: bytes


class NewLeaf(NamedTuple):
    """A leaf with its place and hash, ready to be committed."""

    place: int
    hash: bytes
    leaf: bytes


class LogDatabase:
    """Two connections to one file: one for the single writer, one for readers."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._closed = False
        self._places = PlaceIndex(self._write, self.leaves)
        self.find = self._places.find
        self.move_tail = self._places.move

    def load(self) -> LogState | None:
        """Return the newest state, or None when there is no database or no row.

        Raises:
            TrustError: ``STO-L049`` when the file is damaged.
        """
        if self._reader is None and not self._path.exists():
            return None
        query = "SELECT origin, size, root, frontier FROM state"
        with damaged("log database"):
            try:
                row = next(iter(self._fetch(query)), None)
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return None
        if row is None:
            return None
        blob = row[3]
        if [type(one) for one in row] != [str, int, bytes, bytes]:
            raise TrustError("STO-L049", "the log database's state is malformed")
        pieces = range(0, len(blob), HASH_BYTES)
        hashes = tuple(blob[at : at + HASH_BYTES] for at in pieces)
        return LogState(row[0], Frontier(row[1], hashes), row[2])

    def create(self, origin: str) -> None:
        """Create an empty log, durably."""
        connection = self._write()
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO state VALUES (1, ?, 0, ?, x'', 0)", (origin, EMPTY_ROOT)
        )
        sync_directory(self._path.parent)

    def commit(
        self,
        leaves: Sequence[NewLeaf],
        labels: Sequence[tuple[str, int]],
        frontier: Frontier,
    ) -> None:
        """Store leaves, labels and the new frontier in one flushed transaction.

        Raises:
            TrustError: ``STO-L053`` when the log is not where the leaves begin: someone
                else writes. Nothing was stored.
        """
        connection = self._write()
        state = (frontier.size, frontier.root(), b"".join(frontier.hashes))
        with transaction(connection):
            moved = connection.execute(
                "UPDATE state SET size = ?, root = ?, frontier = ? WHERE size = ?",
                (*state, frontier.size - len(leaves)),
            )
            if moved.rowcount != 1:
                raise TrustError(
                    "STO-L053", "the log database was changed by another process"
                )
            rows = [(place, leaf) for place, _, leaf in leaves]
            insert_rows(connection, "INSERT INTO leaves", rows)
            # A retried append brings labels that are there already: OR IGNORE.
            sums = [(*one, label_sum(*one)) for one in labels]
            insert_rows(connection, "INSERT OR IGNORE INTO labels", sums)
        self._places.add([(item.hash, item.place) for item in leaves])

    def leaves(self, start: int, end: int) -> list[bytes]:
        """Return the leaves [start, end); fewer when the table has fewer.

        Raises:
            TrustError: ``STO-L049`` when the file is damaged.
            UnreachableError: ``STO-L002`` when it cannot be read.
        """
        query = "SELECT leaf FROM leaves WHERE idx >= ? AND idx < ? ORDER BY idx"
        found = [row[0] for row in self._read(query, (start, end))]
        if not all(isinstance(leaf, bytes) for leaf in found):
            raise TrustError("STO-L049", f"a leaf from {start} on is no longer bytes")
        return found

    def find_label(self, label: str) -> list[int]:
        """Return the places of all leaves labelled so, oldest first."""
        query = "SELECT idx FROM labels WHERE label = ? ORDER BY idx"
        return [row[0] for row in self._read(query, (label,))]

    def close(self) -> None:
        """Close both connections for good."""
        self._closed = True
        with self._reading, contextlib.suppress(sqlite3.Error):
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _write(self) -> sqlite3.Connection:
        if self._writer is None:
            self._check_open()
            self._writer = connect(self._path)
            self._writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return self._writer

    def _read(self, query: str, values: Iterable[object] = ()) -> list[sqlite3.Row]:
        with damaged("log database"):
            return self._fetch(query, values)

    def _fetch(self, query: str, values: Iterable[object] = ()) -> list[sqlite3.Row]:
        with self._reading:
            if self._reader is None:
                self._check_open()
                self._reader = connect(self._path, read_only=self._read_only)
            return self._reader.execute(query, tuple(values)).fetchall()

    def _check_open(self) -> None:
        if self._closed:
            raise InternalError("STO-L051", "the log was closed")


def label_sum(label: str, index: int) -> int:
    """Return the check of a label's row: no leaf covers it, and a bit may flip."""
    return zlib.crc32(f"{index} {label}".encode(errors="surrogatepass"))
