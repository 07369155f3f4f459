"""The log database: every leaf in order, the frontier, and private labels.

Hashes are random keys: an index over them would dirty one page a leaf in every flush.
So the places of the newest leaves are kept in memory and moved into the index a few
thousand at a time; after a restart they are read back from the leaves.

Labels (task ids) are a side index for the log's own operator: they find a leaf by the
task it belongs to, are in no leaf and are never published.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.merkle import EMPTY_ROOT, HASH_BYTES, Frontier, leaf_hash
from stoilo.audit.sqlite import connect, damaged, sync_directory
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["LogDatabase", "LogState", "NewLeaf"]

_SCHEMA = (
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
_QUERY_CHUNK = 500
_TAIL_LEAVES = 8192  # places kept in memory before they move into the index
_CACHE_KIB = 65_536


@dataclass(frozen=True, slots=True)
class LogState:
    """The newest committed state: origin, frontier and the root stored beside it."""

    origin: str
    frontier: Frontier
    root: bytes


@dataclass(frozen=True, slots=True)
class NewLeaf:
    """A leaf with its place and hash, ready to be committed."""

    index: int
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
        self._tail: dict[bytes, int] | None = None

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
                row = next(iter(self._read(query)), None)
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return None
        if row is None:
            return None
        blob = row[3]
        pieces = range(0, len(blob), HASH_BYTES)
        hashes = tuple(blob[at : at + HASH_BYTES] for at in pieces)
        return LogState(row[0], Frontier(row[1], hashes), row[2])

    def create(self, origin: str) -> None:
        """Create an empty log, durably."""
        connection = self._write()
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO state VALUES (1, ?, 0, ?, x'', 0)", (origin, EMPTY_ROOT)
        )
        sync_directory(self._path.parent)

    def find(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the places of those leaf hashes that are in the log (writer only).

        Raises:
            TrustError: ``STO-L049`` when the index points to another leaf.
        """
        tail = self._load_tail()
        found = {one: tail[one] for one in hashes if one in tail}
        rest = [one for one in hashes if one not in tail]
        for at in range(0, len(rest), _QUERY_CHUNK):
            part = rest[at : at + _QUERY_CHUNK]
            marks = ",".join("?" * len(part))
            query = f"SELECT hash, idx FROM places WHERE hash IN ({marks})"  # noqa: S608
            for digest, index in self._write().execute(query, part).fetchall():
                if [leaf_hash(leaf) for leaf in self.leaves(index, index + 1)] != [
                    digest
                ]:
                    raise TrustError("STO-L049", "the log database's index is wrong")
                found[digest] = index
        return found

    def _load_tail(self) -> dict[bytes, int]:
        """Return the places that are not in the index yet."""
        if self._tail is None:
            query = "SELECT indexed, size FROM state"
            indexed, size = self._write().execute(query).fetchone()
            leaves = self.leaves(indexed, size)
            self._tail = {leaf_hash(leaf): indexed + n for n, leaf in enumerate(leaves)}
        return self._tail

    def move_tail(self) -> None:
        """Move the newest places into the index, if there are enough of them."""
        tail = self._load_tail()
        if len(tail) < _TAIL_LEAVES:
            return
        connection = self._write()
        with _transaction(connection):
            rows = sorted(tail.items())
            connection.executemany("INSERT OR REPLACE INTO places VALUES (?, ?)", rows)
            connection.execute(
                "UPDATE state SET indexed = ?", (max(tail.values()) + 1,)
            )
        tail.clear()

    def commit(
        self,
        leaves: Sequence[NewLeaf],
        labels: Sequence[tuple[str, int]],
        frontier: Frontier,
    ) -> None:
        """Store leaves, labels and the new frontier in one flushed transaction."""
        tail = self._load_tail()
        connection = self._write()
        with _transaction(connection):
            connection.executemany(
                "INSERT INTO leaves VALUES (?, ?)",
                [(item.index, item.leaf) for item in leaves],
            )
            connection.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?)", labels)
            connection.execute(
                "UPDATE state SET size = ?, root = ?, frontier = ?",
                (frontier.size, frontier.root(), b"".join(frontier.hashes)),
            )
        tail.update((item.hash, item.index) for item in leaves)

    def leaves(self, start: int, end: int) -> list[bytes]:
        """Return the leaves [start, end); fewer when the table has fewer."""
        query = "SELECT leaf FROM leaves WHERE idx >= ? AND idx < ? ORDER BY idx"
        return [row[0] for row in self._read(query, (start, end))]

    def find_label(self, label: str) -> list[int]:
        """Return the places of all leaves labelled so, oldest first."""
        query = "SELECT idx FROM labels WHERE label = ? ORDER BY idx"
        return [row[0] for row in self._read(query, (label,))]

    def close(self) -> None:
        """Close both connections."""
        with self._reading, contextlib.suppress(sqlite3.Error):
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _write(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = connect(self._path)
            self._writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return self._writer

    def _read(self, query: str, values: Iterable[object] = ()) -> list[sqlite3.Row]:
        with self._reading:
            if self._reader is None:
                self._reader = connect(self._path, read_only=self._read_only)
            return self._reader.execute(query, tuple(values)).fetchall()


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, flushed, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
