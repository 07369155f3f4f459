"""What a backup says of itself: each file with its digest, and where the log stood.

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
import tarfile
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


FORMAT: Final = "stoilo-backup/1"
MANIFEST_FILE: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024

_PATH = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){0,15}"
)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BackupFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file below the data directory: path, bytes, SHA-256."""

    path: str
    size: int
    sha256: str


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table's rows, for a database that is no file.

    Attributes:
        branch: whose tables: ``server`` or ``engine``.
        revision: of the branch's schema when the rows were read.
        table: its name.
        size: bytes of the file ``tables/BRANCH/TABLE``.
        sha256: its digest.
    """

    branch: Literal["server", "engine"]
    revision: str
    table: str
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """Return where its rows lie in the backup."""
        return f"tables/{self.branch}/{self.table}"


class LogPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log stood: name, acknowledged leaves and their root (hex), published."""

    origin: str
    size: int
    root: str
    published: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole backup.

    Attributes:
        format: `FORMAT`.
        version: of stoilo.
        taken_at: the moment that everything in it is of, s since 1970.
        offline_keys: whether ``keys/offline`` is in it.
        development: whether the server cannot start without them.
        log: where the log stood.
        files: below the data directory.
        tables: of databases that are no files.
    """

    format: str
    version: str
    taken_at: int
    offline_keys: bool
    development: bool
    log: LogPlace
    files: tuple[BackupFile, ...]
    tables: tuple[TableFile, ...] = ()


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
    every: list[BackupFile | TableFile] = [*found.files, *found.tables]
    for one in every:
        good = _PATH.fullmatch(one.path) and _DIGEST.fullmatch(one.sha256)
        if not good or one.size < 0 or one.path in seen:
            raise TrustError("STO-B065", f"the manifest names {one.path[:80]!r}")
        seen.add(one.path)
    return found


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
