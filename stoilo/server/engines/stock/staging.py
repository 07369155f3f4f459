"""Input files into the project's download folder: by digest, whole, once.

A file's name follows from its SHA-256 and a secret of the project, so equal files are
stored once, and nobody who only knows a digest can ask the public download folder for
the file. Beside it lies ``NAME.md5`` in BOINC's form, which spares ``create_work`` and the
scheduler reading the file again. Templates mark every file ``<no_delete/>``: BOINC's own
deleter would take it away when the first of its workunits ends; `remove` does it when
the last has.

Files appear under their names only when complete (written aside, then renamed), and
`sync` makes a batch of them durable at once; only then may a row name them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import hmac
import os
import re
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError
from stoilo.server.engines.stock.project.directory import place
from stoilo.server.engines.workunits import measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stoilo.server.engines.workunits import WorkunitFile


_NAME_DIGITS: Final = 40
_NAME: Final = re.compile(f"stoilo_[0-9a-f]{{{_NAME_DIGITS}}}")
_FILE_MODE: Final = 0o644  # a web server hands them out
_FOLDER_MODE: Final = 0o2775  # BOINC's tools may run as another user of the group
_FOR_ALL: Final = stat.S_IROTH | stat.S_IXOTH
_REMEMBERED: Final = 65_536
# Below the downloads. Files that begin in one folder lie close together on the disk:
# to make each in a folder of its own costs many times as much as to rename it into
# that.
_DRAFTS: Final = ".stoilo"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file as the project knows it."""

    name: str  # in the download folder, immutable
    size: int  # bytes
    md5: str  # BOINC's checksum


class Stage:
    """The files below one download folder."""

    def __init__(
        self,
        download: Path,
        fanout: int,
        secret: bytes,
        beside: tuple[Path, ...] = (),
    ) -> None:
        self._download = download
        self._drafts = download / _DRAFTS
        self._fanout = fanout
        self._secret = secret
        self._beside = beside
        self._known: dict[str, StagedFile] = {}
        self._written: set[Path] = set()

    def name_of(self, digest: str) -> str:
        """Return the name of the file of a digest."""
        text = hmac.new(self._secret, digest.encode(), hashlib.sha256).hexdigest()
        return f"stoilo_{text[:_NAME_DIGITS]}"

    def path_of(self, name: str) -> Path:
        """Return where a file lies."""
        return place(self._download, name, self._fanout)

    def add(self, files: Iterable[WorkunitFile]) -> dict[str, StagedFile]:
        """Store files that are not there yet; returns all of them by digest.

        Raises:
            TrustError: ``STO-E002`` when a file does not have its digest.
            InternalError: ``STO-R030`` when the disk refuses; call again later.
        """
        found: dict[str, StagedFile] = {}
        try:
            _make_folder(self._drafts)
            for file in files:
                if file.digest not in found:
                    found[file.digest] = self._add(file)
        except OSError as error:
            raise InternalError(
                "STO-R030", f"an input file could not be staged (errno {error.errno})"
            ) from error
        return found

    def write(self, path: Path, text: str) -> None:
        """Write a file unless it is there as it should be; raises ``STO-R030``."""
        if path in self._written:
            return
        try:
            if not _holds(path, text.encode()):
                _make_folder(path.parent)
                _write_whole(path, text.encode(), path.parent)
        except OSError as error:
            raise InternalError(
                "STO-R030", f"a template could not be written (errno {error.errno})"
            ) from error
        if len(self._written) >= _REMEMBERED:
            self._written.clear()
        self._written.add(path)

    def sync(self) -> None:
        """Return when everything that was added is on the disk; raises ``STO-R030``.

        After a failure nothing is believed to be there that is not looked at.
        """
        try:
            disks = {one.stat().st_dev: one for one in (self._download, *self._beside)}
            for folder in disks.values():
                _sync_disk(folder)
        except OSError as error:
            self._known.clear()
            self._written.clear()
            raise InternalError(
                "STO-R030", f"the disk of the downloads refuses (errno {error.errno})"
            ) from error

    def names(self) -> set[str]:
        """Return the names of all staged files, of checksums without a file too."""
        folders = [self._download, *filter(Path.is_dir, self._download.iterdir())]
        found = (
            one.name.removesuffix(".md5") for each in folders for one in each.iterdir()
        )
        return {name for name in found if _NAME.fullmatch(name)}

    def remove_drafts(self) -> None:
        """Remove what a crash has left half written; nothing may be being written."""
        with contextlib.suppress(FileNotFoundError):
            for one in self._drafts.iterdir():
                one.unlink(missing_ok=True)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no workunit needs any more; those that are gone are gone."""
        dropped = set(names)
        self._known = {
            digest: one
            for digest, one in self._known.items()
            if one.name not in dropped
        }
        for name in names:
            path = self.path_of(name)
            path.with_name(f"{name}.md5").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _add(self, file: WorkunitFile) -> StagedFile:
        known = self._known.get(file.digest)
        path = self.path_of(self.name_of(file.digest))
        if known is not None and _has_size(path, known.size):
            return known
        staged = self._store(file, path)
        sums = path.with_name(f"{path.name}.md5")
        _write_whole(sums, f"{staged.md5} {staged.size}\n".encode(), self._drafts)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[file.digest] = staged
        return staged

    def _store(self, file: WorkunitFile, path: Path) -> StagedFile:
        if isinstance(file.source, bytes):
            size, digest, md5 = measure(file.source, file.digest)
            if not _has_digest(path, size, digest):
                _write_whole(path, file.source, self._drafts)
            return StagedFile(path.name, size, md5)
        draft = self._drafts / f".{path.name}.{secrets.token_hex(4)}"
        try:
            _link_or_copy(file.source, draft)
            size, _, md5 = measure(draft, file.digest)
            _settle(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return StagedFile(path.name, size, md5)


def _has_size(path: Path, size: int) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == size
    return False


def _has_digest(path: Path, size: int, digest: str) -> bool:
    """Say whether a file is there whole: before a power cut it may have had no bytes."""
    if not _has_size(path, size):
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest


def _holds(path: Path, data: bytes) -> bool:
    return _has_size(path, len(data)) and path.read_bytes() == data


def _sync_disk(folder: Path) -> None:
    """Return when all that was written to a folder's disk is there; raises ``OSError``."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(number):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(number)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _open_up(folder)


def _settle(draft: Path, path: Path) -> None:
    try:
        draft.replace(path)
    except FileNotFoundError:  # the first file of its folder
        _make_folder(path.parent)
        draft.replace(path)


def _open_up(folder: Path) -> None:
    """Let the web server read a new directory, whatever this process's umask.

    The bit by which files take over the group is forbidden to a hardened service
    (``RestrictSUIDSGID=``) and can be done without; that hosts can read it cannot.

    Raises:
        OSError: it is another's and closed; it is taken away again if it is empty.
    """
    for mode in (_FOLDER_MODE, stat.S_IRWXU | stat.S_IRWXG | _FOR_ALL):
        with contextlib.suppress(OSError):  # another user's may be open already
            folder.chmod(mode)
            return
    if folder.stat().st_mode & _FOR_ALL != _FOR_ALL:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise PermissionError(errno.EACCES, "hosts could not read a new directory")


def _write_whole(path: Path, data: bytes, drafts: Path) -> None:
    """Write a file that is there whole or not at all; `drafts` is on the same disk."""
    draft = drafts / f".{path.name}.{secrets.token_hex(4)}"
    try:
        _write_new(draft, data)
        _settle(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _write_new(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    number = os.open(path, flags, _FILE_MODE)
    try:
        os.fchmod(number, _FILE_MODE)
        left = memoryview(data)
        while left:
            left = left[os.write(number, left) :]
    finally:
        os.close(number)


def _link_or_copy(source: Path, target: Path) -> None:
    """Link a file that everybody may read, copy any other."""
    if source.stat().st_mode & stat.S_IROTH:
        with contextlib.suppress(OSError):  # another disk, or links are forbidden
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    target.chmod(_FILE_MODE)
