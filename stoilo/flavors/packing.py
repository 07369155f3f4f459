"""What a build does with a frozen tree: hash every file, write its archive."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.frozen_tree import (
    BLOCK,
    FILES,
    MANIFEST_NAME,
    XZ_PRESET,
    Tree,
    TreeFile,
    broken_tree,
    changed_file,
    render_tree,
    ustar_header,
)

_CHUNK = 1 << 20


class Target(Protocol):
    """What archives are written to."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""
        ...


def hash_file(path: Path) -> tuple[Digest, int]:
    """Return digest and size of the regular file at `path`; links raise ``STO-F006``."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )
    except OSError as error:
        raise _foreign(path.name, error.strerror or "it cannot be opened") from error
    state, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _foreign(path.name, "it is not a regular file")
        while chunk := file.read(_CHUNK):
            state.update(chunk)
            size += len(chunk)
    return Digest(state.hexdigest()), size


def describe_tree(directory: Path, part: str, platform: str) -> Tree:
    """Hash every file below `directory`; a manifest at its top is left out.

    Args:
        directory: the tree.
        part: what it is: ``verifier`` or a flavor's name.
        platform: as `platform_name` says it.

    Raises:
        TrustError: ``STO-F006`` it holds a link, a special file or an empty directory,
            a name is not allowed or there is too much.
    """
    files: list[TreeFile] = []
    for path in sorted(_walk(directory, ""), key=str):
        if path == MANIFEST_NAME:
            continue
        if len(files) == FILES:
            raise broken_tree(0, f"it lists more than {FILES:,} files")
        digest, size = hash_file(directory / path)
        mode = (directory / path).stat().st_mode
        files.append(TreeFile(digest, size, bool(mode & stat.S_IXUSR), path))
    tree = Tree(part, platform, tuple(files))
    render_tree(tree)
    return tree


def _walk(directory: Path, below: str) -> Iterator[str]:
    """Yield the paths of all files, relative and with slashes."""
    try:
        entries = sorted(os.scandir(directory / below), key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise _foreign(below or directory.name, reason) from error
    if not entries:
        raise _foreign(below or ".", "it is an empty directory")
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(directory, path)
        elif entry.is_file(follow_symlinks=False):
            yield path
        else:
            raise _foreign(path, "it is a link or a special file")


def _foreign(path: str, reason: str) -> TrustError:
    return TrustError("STO-F006", f"{path[:120]!r} does not belong in a tree: {reason}")


def write_archive(directory: Path, tree: Tree, stream: Target) -> None:
    """Write the archive of `tree`, whose files lie below `directory`.

    Raises:
        TrustError: ``STO-F006``, a file is no longer what the manifest says.
    """
    manifest = render_tree(tree)
    _write_member(stream, MANIFEST_NAME, manifest)
    for file in tree.files:
        path = directory / file.path
        if hash_file(path) != (file.digest, file.size):
            raise changed_file(file.path)
        header = ustar_header(file.path, file.size, executable=file.executable)
        stream.write(header)
        with path.open("rb") as source:
            shutil.copyfileobj(source, stream, _CHUNK)
        stream.write(bytes(-file.size % BLOCK))
    stream.write(bytes(2 * BLOCK))


def _write_member(stream: Target, path: str, data: bytes) -> None:
    stream.write(ustar_header(path, len(data), executable=False))
    stream.write(data + bytes(-len(data) % BLOCK))


class XzWriter:
    """Compresses what is written to it; `close` ends the stream."""

    def __init__(self, stream: Target) -> None:
        self._stream = stream
        self._encoder = lzma.LZMACompressor(
            lzma.FORMAT_XZ, lzma.CHECK_CRC64, preset=XZ_PRESET
        )

    def write(self, data: bytes) -> None:
        """Compress `data`."""
        self._stream.write(self._encoder.compress(data))

    def close(self) -> None:
        """Write what is left."""
        self._stream.write(self._encoder.flush())
