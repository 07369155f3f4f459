"""From a runtime's archive to a tree in this computer's own directory, once.

The archive's digest is checked before a byte is decompressed; its reader (`flavors.archive`)
knows no links, owners or names but those of the manifest whose digest the release signed.
Files are written below a temporary name, flushed with their directories, and renamed: a
tree is there completely or not at all, whatever is killed when. Several processes may want
the same tree at once; one unpacks, the others wait.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stoilo.core.digests import Digest
from stoilo.core.errors import InternalError, PolicyRefusal, TrustError
from stoilo.executor.trees import (
    evict_trees,
    lock_tree,
    remove_directory,
    temporary_name,
    touch_tree,
)
from stoilo.flavors.archive import ArchiveMember, XzReader, read_archive
from stoilo.flavors.tree import MANIFEST_NAME, parse_tree

__all__ = ["WantedTree", "hold_tree"]

_CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WantedTree:
    """A tree that a verified release names.

    Attributes:
        digest: of the tree, and its directory's name.
        archive_digest: SHA-256 of the archive as shipped.
        archive_bytes: its size.
    """

    digest: Digest
    archive_digest: Digest
    archive_bytes: int


@contextmanager
def hold_tree(
    directory: Path, wanted: WantedTree, archive: Path | None, cap_bytes: int
) -> Iterator[Path]:
    """Have the tree unpacked and keep it while the block lasts; yields where it is.

    What lies there has still to be hashed (`check_tree`).

    Args:
        directory: this computer's own, of trees.
        wanted: what the release says.
        archive: the archive's file, hostile; None when the task brought none.
        cap_bytes: what all trees together may take.

    Raises:
        TrustError: STO-F039 the archive is another one or missing, and the codes of
            `read_archive`.
        PolicyRefusal: STO-F043 the tree does not fit under the cap.
        InternalError: STO-F042 the disk is full or takes no changes.
    """
    place = directory / wanted.digest
    while True:
        with lock_tree(directory, wanted.digest, alone=False):
            if os.path.lexists(place):
                touch_tree(directory, wanted.digest)
                yield place
                return
        if archive is None:
            raise _other_archive("the task brought no archive of its runtime")
        _unpack(directory, wanted, archive, cap_bytes)


def _unpack(directory: Path, wanted: WantedTree, archive: Path, cap_bytes: int) -> None:
    """Unpack once; returns when somebody else was quicker."""
    with lock_tree(directory, wanted.digest, alone=True):
        _sweep(directory, wanted.digest)
        if os.path.lexists(directory / wanted.digest):
            return
        temporary = directory / temporary_name(wanted.digest)
        try:
            with _open_archive(archive, wanted) as stream:
                temporary.mkdir(mode=0o700)
                members = read_archive(XzReader(stream), wanted.digest)
                _write_members(members, temporary, directory, wanted.digest, cap_bytes)
            temporary.rename(directory / wanted.digest)
            _sync(directory)
        except OSError as error:
            raise _no_room(error) from error
        finally:
            remove_directory(temporary)


def _sweep(directory: Path, digest: Digest) -> None:
    """Remove what killed processes left of this tree; the lock keeps others out."""
    for path in directory.glob(f".{digest}.*.tmp"):
        remove_directory(path)


@contextmanager
def _open_archive(path: Path, wanted: WantedTree) -> Iterator[BinaryIO]:
    """Yield the archive at its beginning, once all of it has been hashed."""
    try:
        descriptor = os.open(path, _READ)
        file = os.fdopen(descriptor, "rb", buffering=0)
    except OSError as error:
        raise _other_archive("it cannot be opened") from error
    with file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != wanted.archive_bytes:
            raise _other_archive("it is no file of that size")
        state, left = hashlib.sha256(), wanted.archive_bytes + 1
        while left and (chunk := file.read(min(_CHUNK, left))):
            state.update(chunk)
            left -= len(chunk)
        if left != 1 or state.hexdigest() != wanted.archive_digest:
            raise _other_archive("its digest is another one")
        file.seek(0)
        yield file


def _write_members(
    members: Iterator[ArchiveMember],
    temporary: Path,
    directory: Path,
    digest: Digest,
    cap_bytes: int,
) -> None:
    """Write every member below `temporary`, durably; the manifest says what fits."""
    folders = {""}
    for member in members:
        path = member.file.path
        if path == MANIFEST_NAME:
            manifest = b"".join(member.chunks)
            _make_room(directory, digest, parse_tree(manifest).size, cap_bytes)
            _write(temporary, member, iter((manifest,)))
            continue
        for folder in _folders_of(path):
            if folder not in folders:
                (temporary / folder).mkdir(mode=0o755)
                folders.add(folder)
        _write(temporary, member, member.chunks)
    for folder in folders:
        _sync(temporary / folder)


def _make_room(directory: Path, digest: Digest, size: int, cap_bytes: int) -> None:
    """Evict what is used least, or refuse what would never fit."""
    left = evict_trees(directory, cap_bytes, needed=size, keep=digest)
    if size > left:
        raise PolicyRefusal(
            "STO-F043",
            f"the task's runtime takes {size:,} bytes and {max(left, 0):,} are left",
            hint="give BOINC more of the disk, in its own preferences",
        )


def _folders_of(path: str) -> tuple[str, ...]:
    """Return the directories above `path`, the outermost first."""
    parts = path.split("/")
    return tuple("/".join(parts[:end]) for end in range(1, len(parts)))


def _write(temporary: Path, member: ArchiveMember, chunks: Iterator[bytes]) -> None:
    """Write one file: new, no link, durable."""
    mode = 0o555 if member.file.executable else 0o444
    descriptor = os.open(temporary / member.file.path, _WRITE, mode)
    with os.fdopen(descriptor, "wb", buffering=0) as target:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[target.write(view) :]
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def _sync(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _other_archive(reason: str) -> TrustError:
    """Return ``STO-F039``."""
    return TrustError(
        "STO-F039",
        f"the archive of the task's runtime is not the one of the release: {reason}",
        hint="BOINC fetches it again after a reset of the project",
    )


def _no_room(error: OSError) -> InternalError:
    """Return ``STO-F042``; a disk that fails while reading comes here too."""
    return InternalError(
        "STO-F042",
        f"the task's runtime cannot be unpacked: {os.strerror(error.errno or 0)}",
        hint="make room on the disk, or make it writable; the task is tried again",
    )
