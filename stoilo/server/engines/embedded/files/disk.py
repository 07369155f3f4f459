"""Files of hosts and for hosts on the disk: measured, made durable, removed.

An error of the disk becomes one of ours, or is logged where what is done can wait.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, BinaryIO, Final

from stoilo.core.errors import InternalError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "KnownDigests",
    "disk_error",
    "free_bytes",
    "md5_of",
    "remove",
    "sha256_of",
    "size_of",
    "sync",
]

log = logging.getLogger(__name__)

CHUNK: Final = 1024 * 1024
DIGESTS_REMEMBERED: Final = 16_384


class KnownDigests:
    """MD5 of complete uploads, of those that were noted last; for any thread."""

    def __init__(self, most: int = DIGESTS_REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, name: str) -> str:
        """Return what is known of a file, empty if nothing is."""
        with self._lock:
            return self._known.get(name, "")

    def note(self, name: str, digest: str) -> None:
        """Note the digest of a complete file, which never changes again."""
        with self._lock:
            self._known[name] = digest
            self._known.move_to_end(name)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def forget(self, name: str) -> None:
        """Forget a file that is not there any more."""
        with self._lock:
            self._known.pop(name, None)


def free_bytes(directory: Path) -> int:
    """Return how many bytes are free on a directory's disk."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def size_of(path: Path) -> int:
    """Return a file's size, 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def remove(path: Path) -> bool:
    """Remove a file, if there is one; say whether it is gone."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s could not be removed (errno %s)", path.name, error.errno)
        return False
    return True


def md5_of(path: Path) -> str:
    """Return the MD5 of a file (BOINC's transport check, not a security one)."""
    return _digest(path, hashlib.md5(usedforsecurity=False))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return _digest(path, hashlib.sha256())


def _digest(path: Path, state: hashlib._Hash) -> str:
    """Return the hex digest of a file, read in pieces."""
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                state.update(chunk)
    except OSError as error:
        raise disk_error(error) from error
    return state.hexdigest()


def sync(stream: BinaryIO) -> None:
    """Make what was written durable."""
    try:
        stream.flush()
        os.fsync(stream.fileno())
    except OSError as error:
        raise disk_error(error) from error


def disk_error(error: OSError) -> InternalError:
    """Return our error for the disk's."""
    return InternalError(
        "STO-E003", f"a result file could not be stored (errno {error.errno})"
    )
