"""Where a log lives: paths, and the one seam between the sequencer and the disk.

    DIR/audit/log/          public: checkpoint, tile/…, policy.txt (static files)
    DIR/audit/log.sqlite    leaves, frontier, labels
    DIR/audit/lock          flock of the one writer
    DIR/audit-head/head.sqlite   newest acknowledged head; best on another disk

`DiskStore` is everything durable that the sequencer does, one method a step; tests put
faults between its steps. All methods raise OSError or sqlite3.Error when the machine fails.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.head import HeadDatabase
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import InternalError

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


class DiskRecords:
    """The records of a log on a disk, opened strictly for reading, also beside a writer."""

    def __init__(self, paths: LogPaths, *, read_only: bool = True) -> None:
        self.paths = paths
        self._tiles = TileDirectory(paths.log)
        self._log = LogDatabase(paths.database, read_only=read_only)
        self._head = HeadDatabase(paths.head, read_only=read_only)
        # Bound by name: a step is one call deep, and tests put a fault into one of them.
        self.load_log = self._log.load
        self.load_head = self._head.load
        self.leaves = self._log.leaves
        self.find_label = self._log.find_label
        self.stored_tiles = self._tiles.tiles
        self.partial_widths = self._tiles.partial_widths
        self.read_tile = self._tiles.read_tile

    def load_checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""
        return self._tiles.read("checkpoint", MAX_NOTE_BYTES)

    def close(self) -> None:
        """Close the databases."""
        self._log.close()
        self._head.close()


class DiskStore(DiskRecords):
    """The real store; holds the writer's lock from construction to `close`.

    Raises:
        InternalError: ``STO-L040`` when another process writes this log.
    """

    def __init__(self, data_dir: Path) -> None:
        paths = LogPaths.below(data_dir)
        paths.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = _take_lock(paths.lock)
        super().__init__(paths, read_only=False)
        self.create_log = self._log.create
        self.create_head = self._head.create
        self.find = self._log.find
        self.commit = self._log.commit
        self.move_tail = self._log.move_tail
        self.swap_head = self._head.swap
        self.record_published = self._head.record_published
        self.write_tiles = self._tiles.write_tiles
        self.drop_partials = self._tiles.drop_partials

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
        super().close()
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
