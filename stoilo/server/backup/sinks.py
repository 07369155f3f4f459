"""Where a backup is written to: a directory or one tar file, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from stoilo.core.errors import UsageError
from stoilo.core.files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable


CHUNK: Final = 1024 * 1024
Written = tuple[int, str]
"""Bytes and their SHA-256, hex."""


class Sink(Protocol):
    """Takes files one after the other."""

    def add(self, path: str, source: IO[bytes]) -> Written:
        """Store one file to its end."""
        ...

    def finish(self) -> None:
        """Make everything durable and give it its name."""
        ...

    def discard(self) -> None:
        """Remove everything, unless finished."""
        ...


def is_tar(path: Path) -> bool:
    """Whether a backup of that name is one tar file."""
    return path.suffix == ".tar"


def open_sink(output: Path) -> Sink:
    """Return where to write; a name that ends in ``.tar`` makes one file.

    Raises:
        UsageError: ``STO-B063`` something is there already.
    """
    if output.exists():
        raise UsageError(
            "STO-B063",
            f"{output.name} exists",
            hint="a backup is never written over another one",
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    return TarSink(output) if is_tar(output) else FolderSink(output)


def add_bytes(sink: Sink, path: str, data: bytes) -> Written:
    """Store bytes as a file."""
    return sink.add(path, io.BytesIO(data))


def add_frames(sink: Sink, path: str, frames: Iterable[bytes]) -> Written:
    """Store what is made piece by piece."""
    with tempfile.TemporaryFile() as whole:
        for frame in frames:
            whole.write(frame)
        whole.seek(0)
        return sink.add(path, whole)


class FolderSink:
    """A directory, made under another name first."""

    def __init__(self, output: Path) -> None:
        self._output = output
        name = tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent)
        self._draft = Path(name)
        self._folders = {self._draft}

    def add(self, path: str, source: IO[bytes]) -> Written:
        """Copy, hash and flush one file."""
        target = self._draft / path
        self._make(target.parent)
        digest, size = hashlib.sha256(), 0
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return size, digest.hexdigest()

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._folders.add(folder)

    def finish(self) -> None:
        """Flush all names, then rename."""
        for folder in self._folders:
            sync_directory(folder)
        self._draft.rename(self._output)
        sync_directory(self._output.parent)

    def discard(self) -> None:
        """Remove the draft."""
        shutil.rmtree(self._draft, ignore_errors=True)


class TarSink:
    """One uncompressed tar file, made under another name first."""

    def __init__(self, output: Path) -> None:
        self._output = output
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        self._draft = Path(name)
        self._file = os.fdopen(handle, "wb")
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `finish`
            fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT
        )

    def add(self, path: str, source: IO[bytes]) -> Written:
        """Append one file; its length is looked at first, as tar writes it first."""
        begin = source.tell()
        size = source.seek(0, os.SEEK_END) - begin
        source.seek(begin)
        reader = _Hashing(source)
        member = tarfile.TarInfo(path)
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, reader)
        return size, reader.digest.hexdigest()

    def finish(self) -> None:
        """Flush, then rename."""
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._draft.rename(self._output)
        sync_directory(self._output.parent)

    def discard(self) -> None:
        """Remove the draft."""
        self._file.close()
        self._draft.unlink(missing_ok=True)


class _Hashing(io.RawIOBase):
    """Reads from another file and hashes what was read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._source.read(size)
        self.digest.update(data)
        return data
