"""Archives of frozen trees: a tar file whose every header follows from the manifest.

The first member is ``MANIFEST``, then come exactly the files that it lists, in its order,
then two blocks of zeros and nothing more. A header holds nothing that the manifest does
not determine, so the reader compares headers and interprets none: there is no member type,
owner, link or long name that it could be led by. The archive's own digest is checked by
the caller before a byte is decompressed or parsed.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.flavors.tree import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    Tree,
    TreeFile,
    hash_file,
    parse_tree,
    render_tree,
    tree_digest,
    ustar_split,
)

BLOCK = 512
MTIME = 315_532_800  # The one time of every member: 1980-01-01T00:00:00Z, s
XZ_PRESET = 6  # liblzma's setting for every compressed archive
_XZ_MEMORY = 64 << 20  # bytes that a decoder of this preset may take; it needs 9 MiB
_CHUNK = 1 << 20
_CHECKSUM_AT = 148


class Source(Protocol):
    """What archives are read from: gives at most `size` bytes, none at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        ...


class Target(Protocol):
    """What archives are written to."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""
        ...


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file out of an archive: what it must be, and its bytes in pieces.

    `chunks` must be read to its end, where size and digest have been checked; nothing may
    be done with the bytes before.
    """

    file: TreeFile
    chunks: Iterator[bytes]


def ustar_header(path: str, size: int, *, executable: bool) -> bytes:
    """Return the one 512-byte header of a member."""
    prefix, name = ustar_split(path)
    mode = b"0000755\0" if executable else b"0000644\0"
    fields = (
        name.encode("ascii").ljust(100, b"\0"),
        mode,
        b"0000000\0" * 2,  # uid, gid
        b"%011o\0%011o\0" % (size, MTIME),
        b" " * 8,  # where the checksum comes
        b"0",  # a regular file
        bytes(100),
        b"ustar\x0000",
        bytes(32 + 32),  # user and group
        b"0000000\0" * 2,  # device
        prefix.encode("ascii").ljust(155, b"\0"),
        bytes(12),
    )
    header = bytearray(b"".join(fields))
    header[_CHECKSUM_AT : _CHECKSUM_AT + 8] = b"%06o\0 " % sum(header)
    return bytes(header)


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
            raise _changed(file.path)
        header = ustar_header(file.path, file.size, executable=file.executable)
        stream.write(header)
        with path.open("rb") as source:
            shutil.copyfileobj(source, stream, _CHUNK)
        stream.write(bytes(-file.size % BLOCK))
    stream.write(bytes(2 * BLOCK))


def _write_member(stream: Target, path: str, data: bytes) -> None:
    stream.write(ustar_header(path, len(data), executable=False))
    stream.write(data + bytes(-len(data) % BLOCK))


def read_archive(stream: Source, expected: Digest) -> Iterator[ArchiveMember]:
    """Yield the members of an untrusted, uncompressed archive: the manifest, then files.

    Args:
        stream: untrusted; at most as much is held at once as the manifest is large.
        expected: the tree digest that the archive must have.

    Raises:
        TrustError: ``STO-F001`` a header or the end is not what the manifest demands,
            ``STO-F001`` it is another tree, ``STO-F006`` a file is not as listed,
            ``STO-F001`` the manifest is broken.
    """
    manifest = _read_manifest(stream)
    if tree_digest(manifest) != expected:
        raise TrustError(
            "STO-F001",
            f"the archive holds another tree than {expected[:16]}…",
            hint="fetch it again",
        )
    yield from _read_members(stream, manifest)


def read_any_archive(stream: Source) -> Iterator[ArchiveMember]:
    """Yield the members of whatever tree `stream` holds: to compare it, never to run it.

    Raises:
        TrustError: as `read_archive`, but for ``STO-F001``.
    """
    yield from _read_members(stream, _read_manifest(stream))


def _read_members(stream: Source, manifest: bytes) -> Iterator[ArchiveMember]:
    """Yield the manifest, then each file that it lists; check the end."""
    digest = tree_digest(manifest)
    yield ArchiveMember(
        TreeFile(digest, len(manifest), executable=False, path=MANIFEST_NAME),
        iter((manifest,)),
    )
    for file in parse_tree(manifest).files:
        header = ustar_header(file.path, file.size, executable=file.executable)
        if _read_exactly(stream, BLOCK) != header:
            raise _not_an_archive(
                f"the header of {file.path!r} is not the expected one"
            )
        chunks = _read_file(stream, file)
        yield ArchiveMember(file, chunks)
        for _ in chunks:  # a caller that skipped some bytes
            pass
    if _read_exactly(stream, 2 * BLOCK) != bytes(2 * BLOCK):
        raise _not_an_archive("it does not end after the last file of its manifest")
    if stream.read(1):
        raise _not_an_archive("something stands behind its end")


def _read_manifest(stream: Source) -> bytes:
    header = _read_exactly(stream, BLOCK)
    try:
        size = int(header[124:135], 8)
    except ValueError as error:
        raise _not_an_archive("it does not begin with a manifest") from error
    if not 0 < size <= MANIFEST_BYTES:
        raise _not_an_archive("its manifest is empty or too large")
    if header != ustar_header(MANIFEST_NAME, size, executable=False):
        raise _not_an_archive("it does not begin with a manifest")
    manifest = _read_exactly(stream, size)
    _read_padding(stream, size)
    return manifest


def _read_file(stream: Source, file: TreeFile) -> Iterator[bytes]:
    """Yield the file's bytes; ends only when size and digest hold."""
    state, left = hashlib.sha256(), file.size
    while left:
        chunk = _read_exactly(stream, min(left, _CHUNK))
        state.update(chunk)
        left -= len(chunk)
        yield chunk
    _read_padding(stream, file.size)
    if state.hexdigest() != file.digest:
        raise _changed(file.path)


def _read_padding(stream: Source, size: int) -> None:
    rest = -size % BLOCK
    if _read_exactly(stream, rest) != bytes(rest):
        raise _not_an_archive("padding is not zero")


def _read_exactly(stream: Source, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = stream.read(left)
        if not part:
            raise _not_an_archive("it ends too early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def install_files(members: Iterator[ArchiveMember], directory: Path) -> None:
    """Write every member below the empty `directory`.

    For builders' and readers' own directories; the volunteer's side has its own way of
    doing this, with locks, fsync and renames.

    Raises:
        TrustError: as `read_archive`.
    """
    for member in members:
        path = directory / member.file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if member.file.executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, mode), "wb") as target:
            target.writelines(member.chunks)


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


class XzReader:
    """Decompresses one untrusted ``.xz`` stream, never more than was asked for.

    Raises:
        TrustError: ``STO-F001`` (on reading), it is no such stream, ends too early, needs
            more memory than ours do, or something stands behind it.
    """

    def __init__(self, stream: Source) -> None:
        self._stream = stream
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        while not self._decoder.eof:
            piece = self._stream.read(_CHUNK) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not piece:
                raise _broken_xz("it ends too early")
            try:
                data = self._decoder.decompress(piece, size)
            except (lzma.LZMAError, EOFError) as error:
                raise _broken_xz(str(error)) from error
            if data:
                return data
        if self._decoder.unused_data or self._stream.read(1):
            raise _broken_xz("something stands behind its end")
        return b""


def _broken_xz(reason: str) -> TrustError:
    return TrustError("STO-F001", f"the archive cannot be decompressed: {reason}")


def _not_an_archive(reason: str) -> TrustError:
    return TrustError("STO-F001", f"the archive is not one of a frozen tree: {reason}")


def _changed(path: str) -> TrustError:
    return TrustError("STO-F006", f"{path!r} is not the file that the manifest lists")
