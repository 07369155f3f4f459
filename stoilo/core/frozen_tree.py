"""Frozen trees and their archives: which files, how large, with which digests.

A tree is a directory of regular files only. Its manifest is a text that fixes every byte
of it, and the SHA-256 of that text, the *tree digest*, is what a release signs:

    stoilo-tree/1 <part> <platform>
    <sha256> <size> <x or -> <path>        one line per file, sorted bytewise by path

The launcher parses the same text in C, so that the rules here are few and without choice:
one writing for each tree, no links, no directories of their own, no names that two file
systems could read differently.

An archive is a tar file whose every header follows from the manifest: first ``MANIFEST``, then
exactly the files that it lists, in its order, then two blocks of zeros. A header holds nothing
that the manifest does not determine, so the reader compares headers and interprets none: there
is no member type, owner, link or long name that it could be led by. The archive's own digest is
checked by the caller before a byte is decompressed or parsed.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError

MANIFEST_NAME = "MANIFEST"
FORMAT = "stoilo-tree/1"
MANIFEST_BYTES = 16 << 20  # Most bytes of one manifest
FILES = 32_768  # Most files of one tree
TREE_BYTES = 4 << 30  # Most bytes of all files of a tree
_PATH_BYTES = 240
_NAME_BYTES, _PREFIX_BYTES = 100, 155  # of a ustar header
_CHUNK = 1 << 20

_PART = re.compile(r"[a-z0-9-]{1,32}")
_PLATFORM = re.compile(r"[a-z0-9_]{1,24}-linux")
_COMPONENT = re.compile(r"(?!-|\.{1,2}$)[A-Za-z0-9._+@=,~-]{1,128}")
_LINE = re.compile(r"([0-9a-f]{64}) (0|[1-9][0-9]{0,9}) ([x-]) (\S+)")
_MACHINES = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64"}


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file of a tree: SHA-256, size in bytes, whether it is a program, path."""

    digest: Digest
    size: int
    executable: bool
    path: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole tree; `files` are sorted bytewise by path."""

    part: str
    platform: str
    files: tuple[TreeFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def platform_name(machine: str | None = None) -> str:
    """Return this machine's platform, ``x86_64-linux``, or raise ``STO-F014``.

    Args:
        machine: the processor's name as the kernel says it; default: this machine's.
    """
    name = os.uname().machine if machine is None else machine
    if not sys.platform.startswith("linux") or name not in _MACHINES:
        raise UsageError(
            "STO-F014",
            f"there are no frozen parts for {sys.platform} on {name[:40]}",
            hint="they exist for Linux on x86_64 and aarch64",
        )
    return f"{_MACHINES[name]}-linux"


def tree_digest(manifest: bytes) -> Digest:
    """Return the digest of a tree: plain SHA-256 of its manifest's bytes."""
    return Digest(hashlib.sha256(manifest).hexdigest())


def render_tree(tree: Tree) -> bytes:
    """Return the one manifest of `tree`, or raise ``STO-F006`` when it breaks a rule."""
    _check_head(tree.part, tree.platform)
    _check_files(tree.files)
    lines = [f"{FORMAT} {tree.part} {tree.platform}\n"]
    lines += [
        f"{file.digest} {file.size} {'x' if file.executable else '-'} {file.path}\n"
        for file in tree.files
    ]
    data = "".join(lines).encode("ascii")
    if len(data) > MANIFEST_BYTES:
        raise broken_tree(0, f"it is larger than {MANIFEST_BYTES:,} bytes")
    return data


def parse_tree(data: bytes) -> Tree:
    """Parse untrusted manifest bytes or raise ``STO-F006``."""
    if len(data) > MANIFEST_BYTES:
        raise broken_tree(0, f"it is larger than {MANIFEST_BYTES:,} bytes")
    if not data.endswith(b"\n"):
        raise broken_tree(0, "its last line has no end")
    try:
        head, *lines = data[:-1].decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise broken_tree(0, "it is not plain ASCII text") from error
    words = head.split(" ")
    if len(words) != 3 or words[0] != FORMAT:  # noqa: PLR2004 - format, part, platform
        raise broken_tree(1, f"it does not begin with {FORMAT!r}, part and platform")
    _check_head(words[1], words[2])
    if len(lines) > FILES:
        raise broken_tree(0, f"it lists more than {FILES:,} files")
    files = tuple(_parse_line(line, number) for number, line in enumerate(lines, 2))
    _check_files(files)
    return Tree(words[1], words[2], files)


def _parse_line(line: str, number: int) -> TreeFile:
    match = _LINE.fullmatch(line)
    if match is None:
        raise broken_tree(number, "it is not `digest size x|- path`")
    return TreeFile(Digest(match[1]), int(match[2]), match[3] == "x", match[4])


def _check_head(part: str, platform: str) -> None:
    if not _PART.fullmatch(part):
        raise broken_tree(1, f"{part[:40]!r} is no name of a part")
    if not _PLATFORM.fullmatch(platform):
        raise broken_tree(1, f"{platform[:40]!r} is no platform")


def _check_files(files: tuple[TreeFile, ...]) -> None:
    """Refuse what would not be one tree, the same to every reader."""
    if not files:
        raise broken_tree(0, "it lists no file")
    if len(files) > FILES:
        raise broken_tree(0, f"it lists more than {FILES:,} files")
    if sum(file.size for file in files) > TREE_BYTES:
        raise broken_tree(0, f"its files hold more than {TREE_BYTES:,} bytes")
    before = ""
    for number, file in enumerate(files, 2):
        _check_path(file.path, number)
        if file.path <= before:  # ASCII: order of code points is order of bytes
            raise broken_tree(number, "paths must be sorted, each once")
        before = file.path
    folded = {file.path.lower() for file in files}
    if len(folded) != len(files):
        raise broken_tree(0, "two paths differ in upper and lower case only")
    for path in folded:
        if any(folder in folded for folder in _folders(path)):
            raise broken_tree(0, f"{path!r} lies below a file")


def _check_path(path: str, number: int) -> None:
    if path.lower() == MANIFEST_NAME.lower():
        raise broken_tree(number, f"{MANIFEST_NAME} at the top is the manifest itself")
    if not all(_COMPONENT.fullmatch(name) for name in path.split("/")):
        raise broken_tree(number, f"the path {path[:80]!r} is not allowed")
    ustar_split(path, number)


def _folders(path: str) -> Iterator[str]:
    """Yield every directory above `path`."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def ustar_split(path: str, number: int = 0) -> tuple[str, str]:
    """Return the prefix and name fields of a ustar header for `path`, or ``STO-F006``.

    A path of at most 100 bytes is a name alone; a longer one is split at the first slash
    that leaves at most 100 bytes behind it.
    """
    prefix, name = "", path
    while len(name) > _NAME_BYTES and "/" in name:
        folder, _, name = name.partition("/")
        prefix = f"{prefix}/{folder}" if prefix else folder
    too_long = len(name) > _NAME_BYTES or len(prefix) > _PREFIX_BYTES
    if too_long or len(path) > _PATH_BYTES:
        raise broken_tree(number, f"the path {path[:80]!r}… is too long")
    return prefix, name


def broken_tree(number: int, reason: str) -> TrustError:
    """Return ``STO-F006`` about a line of a manifest (0: about the whole)."""
    where = f"line {number}: " if number else ""
    return TrustError("STO-F006", f"the tree manifest is broken: {where}{reason}")


BLOCK = 512
MTIME = 315_532_800  # The one time of every member: 1980-01-01T00:00:00Z, s
XZ_PRESET = 6  # liblzma's setting for every compressed archive
_XZ_MEMORY = 64 << 20  # bytes that a decoder of this preset may take; it needs 9 MiB
_CHECKSUM_AT = 148


class Source(Protocol):
    """What archives are read from: gives at most `size` bytes, none at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
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


def read_archive(stream: Source, expected: Digest) -> Iterator[ArchiveMember]:
    """Yield the members of an untrusted, uncompressed archive: the manifest, then files.

    Args:
        stream: untrusted; at most as much is held at once as the manifest is large.
        expected: the tree digest that the archive must have.

    Raises:
        TrustError: ``STO-F006`` a header or the end is not what the manifest demands,
            it is another tree, a file is not as listed,
            the manifest is broken.
    """
    manifest = _read_manifest(stream)
    if tree_digest(manifest) != expected:
        raise TrustError(
            "STO-F006",
            f"the archive holds another tree than {expected[:16]}…",
            hint="fetch it again",
        )
    yield from _read_members(stream, manifest)


def read_any_archive(stream: Source) -> Iterator[ArchiveMember]:
    """Yield the members of whatever tree `stream` holds: to compare it, never to run it.

    Raises:
        TrustError: as `read_archive`, but for ``STO-F006``.
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
        raise changed_file(file.path)


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


class XzReader:
    """Decompresses one untrusted ``.xz`` stream, never more than was asked for.

    Raises:
        TrustError: ``STO-F006`` (on reading), it is no such stream, ends too early, needs
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
    return TrustError("STO-F006", f"the archive cannot be decompressed: {reason}")


def _not_an_archive(reason: str) -> TrustError:
    return TrustError("STO-F006", f"the archive is not one of a frozen tree: {reason}")


def changed_file(path: str) -> TrustError:
    """Return ``STO-F006`` about a file of a tree."""
    return TrustError("STO-F006", f"{path!r} is not the file that the manifest lists")
