"""A backup as it is read: its manifest, then each file, checked against its digest."""

from __future__ import annotations

import hashlib
import os
import tarfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from stoilo.core.errors import TrustError, UsageError
from stoilo.server.backup.manifest import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    BackupFile,
    Manifest,
    TableFile,
    parse_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


CHUNK: Final = 1024 * 1024


class Backup(Protocol):
    """A backup that lies somewhere; everything in it is untrusted."""

    def manifest(self) -> Manifest:
        """Return what it says of itself."""
        ...

    def open(self, path: str) -> IO[bytes] | None:
        """Return a file of it to read, None where it is missing."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


@contextmanager
def open_backup(place: Path) -> Iterator[Backup]:
    """Yield the backup at a path: a directory or a tar file.

    Raises:
        UsageError: ``STO-B064`` it is none.
    """
    backup: Backup = _FolderBackup(place) if place.is_dir() else _TarBackup(place)
    with closing(backup):
        yield backup


def copy_checked(
    backup: Backup, path: str, one: BackupFile | TableFile, target: Path
) -> None:
    """Copy one file of a backup, flushed; what has another digest is removed again.

    Raises:
        TrustError: ``STO-B065``.
    """
    source = backup.open(path)
    if source is None:
        raise TrustError("STO-B065", f"{one.path} is missing from the backup")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with closing(source), os.fdopen(handle, "wb") as file:
        while size <= one.size and (chunk := source.read(CHUNK)):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if size != one.size or digest.hexdigest() != one.sha256:
        target.unlink()
        raise TrustError(
            "STO-B065",
            f"{one.path} is not what the backup's manifest says",
            hint="use another backup; nothing was restored",
        )


def _read_manifest(stream: IO[bytes] | None) -> Manifest:
    if stream is None:
        raise UsageError("STO-B064", "there is no manifest.json: this is no backup")
    with closing(stream):
        data = stream.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise UsageError("STO-B064", "manifest.json is too large")
    return parse_manifest(data)


class _FolderBackup:
    """A directory."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def manifest(self) -> Manifest:
        return _read_manifest(self.open(MANIFEST_FILE))

    def open(self, path: str) -> IO[bytes] | None:
        try:
            handle = os.open(
                self._place / path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            )
        except OSError:
            return None
        return os.fdopen(handle, "rb")

    def close(self) -> None:
        """Nothing is open."""


class _TarBackup:
    """One tar file; of a name that comes twice the last is meant, as tar has it."""

    def __init__(self, place: Path) -> None:
        try:
            self._tar = tarfile.open(place, mode="r:")  # noqa: SIM115 - closed by close
            self._members = {
                one.name: one for one in self._tar.getmembers() if one.isreg()
            }
        except (tarfile.TarError, OSError, ValueError) as error:
            raise UsageError(
                "STO-B064", f"{place.name} is no backup: {error}"
            ) from error

    def manifest(self) -> Manifest:
        return _read_manifest(self.open(MANIFEST_FILE))

    def open(self, path: str) -> IO[bytes] | None:
        member = self._members.get(path)
        return None if member is None else self._tar.extractfile(member)

    def close(self) -> None:
        """Close the file."""
        self._tar.close()
