"""Where a log lives: paths, and the one seam between the sequencer and the disk.

    DIR/audit/log/          public: checkpoint, tile/…, policy.txt (static files)
    DIR/audit/log.sqlite    leaves, frontier, labels
    DIR/audit/lock          flock of the one writer
    DIR/audit-head/head.sqlite   newest acknowledged head

The head lies apart (best: on another disk, in another backup), so that a restored backup
of the log cannot pass for the present; every change of it is a compare-and-swap.
`DiskStore` is everything durable that the sequencer does, one method a step; tests put
faults between its steps. Methods raise OSError or sqlite3.Error when the machine fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.sqlite import connect, damaged
from stoilo.audit.log.tile_directory import TileDirectory
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
    """What the head database remembers."""

    origin: str
    head: TreeHead  # newest acknowledged tree head
    published: bytes | None  # newest checkpoint known to be published, a signed note


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
            query = "SELECT origin, size, root, published FROM head WHERE id = 1"
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


_MARK = b"# sha256 "


def seal(text: bytes) -> bytes:
    """Return `text` (whole lines) with its digest in a last line."""
    return text + _line(text)


def unseal(data: bytes) -> bytes | None:
    """Return the text without its last line; None when that line does not fit it.

    What has no such line, as older versions wrote it, comes back as it is.
    """
    text, mark, _ = data.rpartition(_MARK)
    if not mark:
        return data
    return text if data == seal(text) else None


def _line(text: bytes) -> bytes:
    return _MARK + hashlib.sha256(text).hexdigest().encode() + b"\n"


@dataclass(frozen=True, slots=True)
class LogPaths:
    """The places of one log below its data directory."""

    log: Path
    database: Path
    lock: Path
    head: Path

    @classmethod
    def below(cls, data_dir: Path) -> LogPaths:
        """Return the standard places below a data directory."""
        audit = data_dir / "audit"
        return cls(
            log=audit / "log",
            database=audit / "log.sqlite",
            lock=audit / "lock",
            head=data_dir / "audit-head" / "head.sqlite",
        )


def locate_log(path: Path) -> tuple[Path, LogPaths | None]:
    """Return the log directory that `path` means, and its data directory's places.

    `path` is a log directory, a data directory (log at ``audit/log``) or the ``audit``
    directory inside one; for a bare log directory there are no other places.
    """
    if (path / "checkpoint").exists() or (path / "tile").exists():
        return path, None
    candidates = [path, path.absolute().parent] if path.name == "audit" else [path]
    for data_dir in candidates:
        paths = LogPaths.below(data_dir)
        if paths.log.is_dir() or paths.database.exists() or paths.head.exists():
            return paths.log, paths
    return path, None


class DiskStore:
    """The real store; holds the writer's lock from construction to `close`.

    Raises:
        InternalError: ``STO-L040`` when another process writes this log.
    """

    def __init__(self, data_dir: Path) -> None:
        self.paths = paths = LogPaths.below(data_dir)
        paths.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = _take_lock(paths.lock)
        self._tiles = TileDirectory(paths.log)
        self._log = LogDatabase(paths.database)
        self._head = HeadDatabase(paths.head)
        # Bound by name: a step is one call deep, and tests put a fault into one of them.
        self.leaves = self._log.leaves
        self.find_label = self._log.find_label
        self.read_tile = self._tiles.read_tile
        self.create_log = self._log.create
        self.create_head = self._head.create
        self.find = self._log.find
        self.commit = self._log.commit
        self.move_tail = self._log.move_tail
        self.swap_head = self._head.swap
        self.record_published = self._head.record_published
        self.write_tiles = self._tiles.write_tiles
        self.drop_partials = self._tiles.drop_partials

    def load_checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""
        return self._tiles.read("checkpoint", MAX_NOTE_BYTES)

    def write_checkpoint(self, note: bytes) -> None:
        """Durably replace the published checkpoint."""
        self._tiles.replace("checkpoint", note)

    def write_policy(self, text: bytes) -> None:
        """Publish the log's own copy of its policy, unless it is there already."""
        sealed = seal(text)
        if self._tiles.read("policy.txt", len(sealed)) != sealed:
            self._tiles.replace("policy.txt", sealed)

    def close(self) -> None:
        """Close files and databases for good, then release the lock; twice is harmless."""
        # The lock goes last: until then nobody else may write.
        self._tiles.close()
        self._log.close()
        self._head.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _take_lock(path: Path) -> int:
    # A lock of the kernel, not the presence of a file: it ends with the process.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InternalError(
            "STO-L040", "another process is writing this log", hint="stop it first"
        ) from None
    return descriptor
