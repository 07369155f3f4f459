"""Unpacked trees of this computer: held while used, re-hashed at every start, evicted.

A tree lies at ``<directory>/<tree digest>`` and is complete or not there at all. Whoever
uses one holds a lock on it, so that nobody evicts it meanwhile. An archive's digest is
checked before a byte of it is decompressed; it is unpacked beside its place, flushed, renamed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from stoilo.core.digests import Digest
from stoilo.core.errors import InternalError, PolicyRefusal, TrustError
from stoilo.core.files import read_bounded, sync_directory
from stoilo.core.frozen_tree import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    ArchiveMember,
    Tree,
    TreeFile,
    XzReader,
    parse_tree,
    read_archive,
    tree_digest,
)
from stoilo.executor.verifier.installation import disk_trouble

DEFAULT_CAP_BYTES: Final = 8 * 1024**3
"""What the unpacked trees of one computer may take without any preference, bytes."""

SHARE_OF_DISK: Final = 2
"""Trees take at most one part in this many of what BOINC may use: work needs room too."""

MOST_THREADS: Final = 4
_CHUNK: Final = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"\.([0-9a-f]{64})\.[0-9a-f]{1,64}\.tmp")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def tree_cap(disk_bytes: int | None, own: int = DEFAULT_CAP_BYTES) -> int:
    """Return how many bytes the trees may take; what BOINC may use only lowers it."""
    return own if disk_bytes is None else min(own, disk_bytes // SHARE_OF_DISK)


@contextmanager
def lock_tree(
    directory: Path, digest: Digest, *, alone: bool, wait: bool = True
) -> Iterator[None]:
    """Hold tree `digest` below `directory` while the block lasts; `alone`: nobody else.

    Raises:
        InternalError: STO-X008 when the disk refuses.
        BlockingIOError: somebody holds it, and `wait` was not asked for.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with disk_trouble("the lock of a tree cannot be used"):
        lock = os.open(directory / f"{digest}.lock", flags, 0o600)
    try:
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        fcntl.flock(lock, kind if wait else kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def check_tree(directory: Path, digest: Digest) -> Tree:
    """Return the tree in `directory` if every byte of it is what `digest` says.

    Raises:
        TrustError: STO-F006 it is not: a file is missing, changed, linked or too many.
    """
    if directory.is_symlink():
        raise _refused("it is a link")
    manifest = _read_manifest(directory)
    if tree_digest(manifest) != digest:
        raise _refused("its list of files is another one")
    tree = parse_tree(manifest)
    _check_names(directory, tree)
    workers = min(MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers, thread_name_prefix="tree") as pool:
        # The longest file decides when the last thread ends, so it begins first.
        largest_first = sorted(tree.files, key=lambda file: -file.size)
        for _ in pool.map(lambda file: _check_file(directory, file), largest_first):
            pass
    return tree


def evict_trees(
    directory: Path, cap_bytes: int, *, needed: int = 0, keep: Digest | None = None
) -> int:
    """Remove trees, the least recently used first, until `needed` bytes fit.

    Trees that somebody uses, and `keep`, stay.

    `needed`: bytes about to be added.

    Returns:
        Bytes that may be added now; negative when too much is in use.
    """
    _sweep_unfinished(directory)
    kept = sorted(_kept(directory))
    total = sum(size for _, _, size in kept)
    for _, digest, size in kept:
        if total + needed <= cap_bytes:
            break
        # A tree in use is passed over: its lock is held, and waiting could last a whole
        # task.
        if digest != keep and set_aside(directory, Digest(digest)):
            total -= size
    return cap_bytes - total


def set_aside(directory: Path, digest: Digest) -> bool:
    """Remove tree `digest` unless somebody uses it; says whether it is gone.

    It is renamed first, so that no half-removed tree ever has its name.
    """
    try:
        with lock_tree(directory, digest, alone=True, wait=False):
            # Killed in the middle of removing, we leave a name that no tree has.
            away = directory / temporary_name(digest)
            (directory / digest).rename(away)
            remove_directory(away)
    # In use, gone already, or a disk that takes no changes.
    except (OSError, InternalError):
        return False
    return True


def _sweep_unfinished(directory: Path) -> None:
    """Remove what killed processes left; whoever is at work holds the lock."""
    for path in directory.iterdir():
        match = _TEMPORARY.fullmatch(path.name)
        if match is None:
            continue
        try:
            with lock_tree(directory, Digest(match[1]), alone=True, wait=False):
                remove_directory(path)
        except (OSError, InternalError):
            continue


def temporary_name(digest: Digest) -> str:
    """Return a name that no tree has, for what is not finished or not wanted."""
    return f".{digest}.{secrets.token_hex(8)}.tmp"


def remove_directory(directory: Path) -> None:
    """Remove a directory and what is in it, or what has its name, as far as possible."""
    if directory.is_symlink() or directory.is_file():
        directory.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _kept(directory: Path) -> Iterator[tuple[float, str, int]]:
    """Yield of each tree when it was last used, s since 1970, digest and bytes."""
    for path in directory.iterdir():
        if not _DIGEST.fullmatch(path.name) or path.is_symlink():
            continue
        try:
            used = (directory / f"{path.name}.lock").stat().st_mtime
        # Without a lock nobody ever used it: the first to go.
        except OSError:
            used = 0.0
        yield used, path.name, _measure(path)


def _measure(directory: Path) -> int:
    """Return the bytes of all files below `directory`; somebody may be removing it."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _read_manifest(directory: Path) -> bytes:
    try:
        return read_bounded(directory / MANIFEST_NAME, MANIFEST_BYTES)
    except OSError as error:
        raise _refused(
            "its list of files is no plain file or cannot be read"
        ) from error


def _check_names(directory: Path, tree: Tree) -> None:
    listed = {file.path for file in tree.files} | {MANIFEST_NAME}
    folders = {folder for path in listed for folder in _folders_of(path)}
    found = set(_walk(directory, "", folders))
    if extra := found - listed:
        raise _refused(f"{min(extra)[:80]!r} does not belong to it")
    if missing := listed - found:
        raise _refused(f"{min(missing)[:80]!r} is missing")


def _walk(directory: Path, below: str, folders: set[str]) -> Iterator[str]:
    try:
        entries = list(os.scandir(directory / below))
    except OSError as error:
        raise _refused("a directory cannot be read") from error
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if path in folders and entry.is_dir(follow_symlinks=False):
            yield from _walk(directory, path, folders)
        else:
            yield path


def _check_file(directory: Path, file: TreeFile) -> None:
    try:
        descriptor = os.open(directory / file.path, _FILE)
    except OSError as error:
        raise _refused(f"{file.path[:80]!r} is a link or cannot be read") from error
    try:
        status = os.fstat(descriptor)
        same_kind = bool(status.st_mode & stat.S_IXUSR) == file.executable
        if not stat.S_ISREG(status.st_mode) or not same_kind:
            raise _refused(f"{file.path[:80]!r} is another kind of file")
        if status.st_size != file.size or _hash(descriptor, file.size) != file.digest:
            raise _refused(f"{file.path[:80]!r} has changed")
    except OSError as error:
        raise _refused(f"{file.path[:80]!r} cannot be read") from error
    finally:
        os.close(descriptor)


def _hash(descriptor: int, size: int) -> str:
    """Return the SHA-256 of at most `size` + 1 bytes of an open file."""
    # One byte more than listed: a file that grew must not hash like the one that was.
    state, left = hashlib.sha256(), size + 1
    buffer = bytearray(min(_CHUNK, left))
    view = memoryview(buffer)
    while left and (got := os.readv(descriptor, [view[: min(left, len(buffer))]])):
        state.update(view[:got])
        left -= got
    return state.hexdigest()


def _refused(reason: str) -> TrustError:
    return TrustError(
        "STO-F006",
        f"the task's runtime is not the one of the release: {reason}",
        hint="it does not run; it is unpacked anew, or fetched after a reset of the project",
    )


_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WantedTree:
    """A tree that a verified release names."""

    digest: Digest  # of the tree, and its directory's name
    archive_digest: Digest  # SHA-256 of the archive as shipped
    archive_bytes: int  # its size


@contextmanager
def hold_tree(
    directory: Path, wanted: WantedTree, archive: Path | None, cap_bytes: int
) -> Iterator[Path]:
    """Have the tree unpacked and keep it while the block lasts; yields where it is.

    What lies there has still to be hashed (`check_tree`).

    `archive`: the archive's file, hostile; None when the task brought none.

    Raises:
        TrustError: STO-F006 the archive is another one or missing, and the codes of
            `read_archive`.
        PolicyRefusal: STO-X013 the tree does not fit under the cap.
        InternalError: STO-X008 the disk is full or takes no changes.
    """
    place = directory / wanted.digest
    # Unpacking needs the lock alone and use shares it; between the two somebody may
    # evict.
    while True:
        with lock_tree(directory, wanted.digest, alone=False):
            if os.path.lexists(place):
                with suppress(OSError):  # read-only: no reason to stop
                    os.utime(directory / f"{wanted.digest}.lock")  # used now
                yield place
                return
        if archive is None:
            raise _refused("the task brought no archive of its runtime")
        _unpack(directory, wanted, archive, cap_bytes)


def _unpack(directory: Path, wanted: WantedTree, archive: Path, cap_bytes: int) -> None:
    """Unpack once; returns when somebody else was quicker."""
    _sweep_unfinished(directory)
    with lock_tree(directory, wanted.digest, alone=True):
        if os.path.lexists(directory / wanted.digest):
            return
        temporary = directory / temporary_name(wanted.digest)
        try:
            # A disk that fails while reading counts too.
            with disk_trouble("the task's runtime cannot be unpacked"):
                with _open_archive(archive, wanted) as stream:
                    temporary.mkdir(mode=0o700)
                    members = read_archive(XzReader(stream), wanted.digest)
                    _write_members(
                        members, temporary, directory, wanted.digest, cap_bytes
                    )
                # All files and folders below it are flushed by now: the name is only
                # given to what lasts.
                temporary.rename(directory / wanted.digest)
                sync_directory(directory)
        finally:
            remove_directory(temporary)


@contextmanager
def _open_archive(path: Path, wanted: WantedTree) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, _FILE)
        file = os.fdopen(descriptor, "rb", buffering=0)
    except OSError as error:
        raise _refused("it cannot be opened") from error
    with file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != wanted.archive_bytes:
            raise _refused("it is no file of that size")
        if _hash(descriptor, wanted.archive_bytes) != wanted.archive_digest:
            raise _refused("its digest is another one")
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
        sync_directory(temporary / folder)


def _make_room(directory: Path, digest: Digest, size: int, cap_bytes: int) -> None:
    """Evict what is used least, or refuse what would never fit."""
    left = evict_trees(directory, cap_bytes, needed=size, keep=digest)
    if size > left:
        raise PolicyRefusal(
            "STO-X013",
            f"the task's runtime takes {size:,} bytes and {max(left, 0):,} are left",
            hint="give BOINC more of the disk, in its own preferences",
        )


def _folders_of(path: str) -> tuple[str, ...]:
    parts = path.split("/")
    return tuple("/".join(parts[:end]) for end in range(1, len(parts)))


def _write(temporary: Path, member: ArchiveMember, chunks: Iterator[bytes]) -> None:
    """Write one file: new, no link, durable."""
    mode = 0o555 if member.file.executable else 0o444
    descriptor = os.open(temporary / member.file.path, _WRITE, mode)
    with os.fdopen(descriptor, "wb") as target:
        target.writelines(chunks)
        target.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
