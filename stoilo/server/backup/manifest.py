"""A backup: a directory of files, each with its digest, and where the log stood.

``manifest.json`` is read before anything else and believed only as far as digests go:
whoever can write a backup can write its manifest. What cannot be forged is the log inside
(its checkpoint is signed), and that is checked separately.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final

import msgspec

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import sync_directory

FORMAT: Final = "stoilo-backup/1"
MANIFEST_FILE: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
CHUNK: Final = 1024 * 1024

_PATH = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){0,15}"
)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BackupFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file below the data directory: path, bytes, SHA-256."""

    path: str
    size: int
    sha256: str


class LogPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log stood: name, acknowledged leaves and their root (hex), published."""

    origin: str
    size: int
    root: str
    published: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole backup."""

    format: str  # `FORMAT`
    version: str  # of stoilo
    taken_at: int  # the moment that everything in it is of, s since 1970
    offline_keys: bool  # whether ``keys/offline`` is in it
    development: bool  # whether the server cannot start without them
    # whether tables of it lay in a MariaDB; here they are files like the others
    mariadb: bool
    log: LogPlace  # where the log stood
    files: tuple[BackupFile, ...]  # below the data directory


def render_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest in (untrusted) bytes.

    Raises:
        UsageError: ``STO-B064`` it is none, or of another version.
        TrustError: ``STO-B065`` a path in it leaves the directory.
    """
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            "STO-B064", f"manifest.json is no backup's: {error}"
        ) from error
    if found.format != FORMAT:
        raise UsageError(
            "STO-B064", f"this is a backup of format {found.format[:40]!r}"
        )
    seen: set[str] = set()
    for one in found.files:
        good = _PATH.fullmatch(one.path) and _DIGEST.fullmatch(one.sha256)
        if not good or one.size < 0 or one.path in seen:
            raise TrustError("STO-B065", f"the manifest names {one.path[:80]!r}")
        seen.add(one.path)
    return found


def read_manifest(place: Path) -> Manifest:
    """Return the manifest of the backup that is the directory `place`.

    Raises:
        UsageError: ``STO-B064`` it is none.
        TrustError: ``STO-B065`` it names files that no backup holds.
    """
    source = _open(place / MANIFEST_FILE)
    if source is None:
        raise UsageError(
            "STO-B064",
            f"{place.name} is no backup: it has no manifest.json",
            hint="a backup is a directory; unpack it first where it was packed",
        )
    with source:
        data = source.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise UsageError("STO-B064", "manifest.json is too large")
    return parse_manifest(data)


def copy_checked(source: Path, one: BackupFile, target: Path) -> None:
    """Copy one file of a backup, flushed; what has another digest is removed again.

    Raises:
        TrustError: ``STO-B065``.
    """
    reading = _open(source)
    if reading is None:
        raise TrustError("STO-B065", f"{one.path} is missing from the backup")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with reading:
        # One byte more than it may have shows that it has grown.
        size, digest = _copy(reading, target, most=one.size + 1)
    if (size, digest) != (one.size, one.sha256):
        target.unlink()
        raise TrustError(
            "STO-B065",
            f"{one.path} is not what the backup's manifest says",
            hint="use another backup; nothing was restored",
        )


def _open(path: Path) -> IO[bytes] | None:
    """Open a file of a backup: never a link out of it, and no pipe is waited for."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        return os.fdopen(os.open(path, flags), "rb")
    except OSError:
        return None


def _copy(source: IO[bytes], target: Path, most: int | None = None) -> tuple[int, str]:
    """Copy to a new private file, flushed; return bytes and SHA-256, hex."""
    digest, size = hashlib.sha256(), 0
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        while chunk := source.read(CHUNK if most is None else min(CHUNK, most - size)):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


class BackupWriter:
    """Takes files one after the other; the directory gets its name at the end.

    Raises:
        UsageError: ``STO-B063`` something is there already.
    """

    def __init__(self, output: Path) -> None:
        if output.exists():
            raise UsageError(
                "STO-B063",
                f"{output.name} exists",
                hint="a backup is never written over another one",
            )
        output.parent.mkdir(parents=True, exist_ok=True)
        self._output = output
        name = tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent)
        self._draft = Path(name)
        self._folders = {self._draft}

    def add(self, path: str, source: IO[bytes] | bytes) -> tuple[int, str]:
        """Copy, hash and flush one file; return its size and SHA-256, hex."""
        target = self._draft / path
        self._make(target.parent)
        return _copy(
            io.BytesIO(source) if isinstance(source, bytes) else source, target
        )

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._folders.add(folder)

    def finish(self) -> None:
        """Flush all names, then rename: a crash leaves a whole backup or none."""
        for folder in self._folders:
            sync_directory(folder)
        self._draft.rename(self._output)
        sync_directory(self._output.parent)

    def discard(self) -> None:
        """Remove everything, unless finished."""
        shutil.rmtree(self._draft, ignore_errors=True)
