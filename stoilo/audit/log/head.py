"""The head database: the newest acknowledged tree head, apart from the log it guards.

It lies in another directory (best: another disk and backup domain), so that a restored
backup of the log cannot pass for the present. Every change is a compare-and-swap.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.log.sqlite import connect, damaged
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import sync_directory

SCHEMA = """
CREATE TABLE IF NOT EXISTS head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    root BLOB NOT NULL,
    published BLOB
) STRICT
"""


@dataclass(frozen=True, slots=True)
class TreeHead:
    """Size (leaves) and root (32 bytes) of one state of the log."""

    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class HeadState:
    """What the head database remembers.

    Attributes:
        origin: the log's name.
        head: newest acknowledged tree head.
        published: newest checkpoint known to be published, a signed note.
    """

    origin: str
    head: TreeHead
    published: bytes | None


class HeadDatabase:
    """One row, written by one process; thread-safe."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    def load(self) -> HeadState | None:
        """Return the state, or None when there is no database or no row.

        Raises:
            TrustError: ``STO-L049`` when the file is damaged.
        """
        if self._connection is None and not self._path.exists():
            return None
        with damaged("head database"), self._guard:
            query = "SELECT origin, size, root, published FROM head"
            try:
                row = self._open().execute(query).fetchone()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return None
        if row is None:
            return None
        kinds = [type(one) for one in row[:3]]
        if kinds != [str, int, bytes] or not isinstance(row[3], bytes | None):
            raise TrustError("STO-L049", "the head database's row is malformed")
        return HeadState(row[0], TreeHead(row[1], row[2]), row[3])

    def create(self, origin: str, head: TreeHead) -> None:
        """Write the first row (an empty log), durably."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._guard:
            connection = self._open()
            connection.execute(SCHEMA)
            connection.execute(
                "INSERT INTO head VALUES (1, ?, ?, ?, NULL)",
                (origin, head.size, head.root),
            )
        sync_directory(self._path.parent)
        # The directory is new as well, and its own name may be lost.
        sync_directory(self._path.parent.parent)

    def swap(self, old: TreeHead, new: TreeHead) -> None:
        """Replace `old` by `new`, durably, or change nothing.

        Raises:
            TrustError: ``STO-L053`` when the row is not `old`: someone else writes.
        """
        with self._guard:
            # Compare-and-swap: of two writers, one must notice before it acknowledges
            # anything.
            cursor = self._open().execute(
                "UPDATE head SET size = ?, root = ? "
                "WHERE id = 1 AND size = ? AND root = ?",
                (new.size, new.root, old.size, old.root),
            )
        if cursor.rowcount != 1:
            raise TrustError(
                "STO-L053", "the head database was changed by another process"
            )

    def record_published(self, checkpoint: bytes) -> None:
        """Remember the newest published checkpoint, durably."""
        with self._guard:
            self._open().execute("UPDATE head SET published = ?", (checkpoint,))

    def close(self) -> None:
        """Close the file for good."""
        with self._guard, contextlib.suppress(sqlite3.Error):
            self._closed = True
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._closed:
                raise InternalError("STO-L051", "the log was closed")
            self._connection = connect(self._path, read_only=self._read_only)
        return self._connection
