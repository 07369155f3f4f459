"""A log in one file: an uncompressed tar with the names of a log directory.

Only what `write_archive` writes is read: plain ustar headers of regular files, names that
a log has, sizes within their bounds, each name once. Members are found by their headers
and read in place; nothing is ever unpacked onto a disk.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stoilo.audit.format.leaf import parse_leaf
from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import MAX_POLICY_BYTES
from stoilo.audit.format.tiles import (
    ENTRIES,
    Tile,
    decode_bundle,
    parse_tile_path,
    render_tile_path,
)
from stoilo.audit.log.side import (
    MAX_RECORDS_BYTES,
    ObjectKind,
    check_object,
    parse_records,
)
from stoilo.audit.log.store import LogPaths
from stoilo.core.digests import check_digest
from stoilo.core.errors import TrustError, UnreachableError, UsageError

_BLOCK = 512
# A hostile archive of empty files: each costs memory, none costs its maker a byte.
_MAX_MEMBERS = 1_000_000
_SIZE = re.compile(rb"[0-7]{11}\0")
_PLAIN_NAME = re.compile(r"[a-z0-9./]{1,100}")
_RECORDS = re.compile(r"records/tile/(0|[1-9][0-9]{0,15})")
_SOURCE = re.compile(r"source/([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class _Member:
    """Where the bytes of one file lie in the archive."""

    start: int
    size: int


class ArchiveSource:
    """A `LogSource` that is one file, hostile; keep it while it is read."""

    paths: LogPaths | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._members = dict(_read_members(file))
            self._partials: defaultdict[Tile, list[int]] = defaultdict(list)
            for tile in self.stored():
                if tile != tile.full:
                    self._partials[tile.full].append(tile.width)
        except OSError as error:
            raise UnreachableError(
                "STO-L002", f"{path.name} cannot be read: {error.strerror}"
            ) from error

    def checkpoint(self) -> bytes | None:
        """Return the checkpoint, None when there is none."""
        return self._get("checkpoint")

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy, None when there is none."""
        return self._get("policy.txt")

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile, None when it does not exist."""
        return self._get(render_tile_path(tile))

    def stored(self) -> Iterator[Tile]:
        """Yield the tiles in the archive."""
        for name in self._members:
            if name.startswith("tile/"):
                yield parse_tile_path(name)

    def partial_widths(self, tile: Tile) -> list[int]:
        """Return the widths of the partial tiles at a full tile's place."""
        return self._partials.get(tile.full, [])

    def record(self, digest: str) -> bytes | None:
        """Return the record with this digest, None when it is not there; reads all."""
        for name in self._members:
            if match := _RECORDS.fullmatch(name):
                for leaf, data in self._with_records(int(match[1])):
                    if data is not None and leaf == digest:
                        return check_object(ObjectKind.RECORD, digest, data)
        return None

    def records_of_tile(self, number: int) -> list[bytes | None]:
        """Return the records of a tile's leaves, None where a leaf has none."""
        data = self._get(f"records/tile/{number}")
        return [] if data is None else parse_records(data)

    def published_source(self, digest: str) -> bytes | None:
        """Return a published source, None when it is not there."""
        data = self._get(f"source/{check_digest(digest)}")
        return None if data is None else check_object(ObjectKind.SOURCE, digest, data)

    def seen(self, number: int) -> bytes | None:
        """Return nothing: what executors saw is not exported."""
        return self._get(f"seen/{number}")

    def _with_records(self, number: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield the digest and record of each leaf of a tile."""
        tile = Tile(ENTRIES, number)
        bundle = self.tile(tile)
        if bundle is None:
            tile = Tile(ENTRIES, number, max(self.partial_widths(tile), default=1))
            bundle = self.tile(tile)
        entries = decode_bundle(bundle or b"", tile.width) if bundle else []
        for entry, data in zip(entries, self.records_of_tile(number), strict=False):
            try:
                yield parse_leaf(entry).digest, data
            except TrustError:
                continue

    def _get(self, name: str) -> bytes | None:
        member = self._members.get(name)
        if member is None:
            return None
        try:
            with self._path.open("rb") as file:
                file.seek(member.start)
                return file.read(member.size)
        except OSError as error:
            raise UnreachableError(
                "STO-L002", f"{self._path.name} cannot be read: {error.strerror}"
            ) from error


def _read_members(file: BinaryIO) -> Iterator[tuple[str, _Member]]:
    """Yield every file of a hostile archive; raises ``STO-L065`` or ``STO-L001``."""
    length = os.fstat(file.fileno()).st_size
    seen: set[str] = set()
    at = 0
    while (header := file.read(_BLOCK)) != bytes(_BLOCK):
        name, size = _parse_header(header, first=at == 0)
        if name in seen or len(seen) == _MAX_MEMBERS:
            raise TrustError(
                "STO-L065", f"{name} is there twice, or there are too many"
            )
        if at + _BLOCK + size > length:
            raise TrustError("STO-L065", f"the archive ends within {name}")
        seen.add(name)
        yield name, _Member(at + _BLOCK, size)
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
        file.seek(at)


def _parse_header(header: bytes, *, first: bool) -> tuple[str, int]:
    """Return name and size of a member."""
    if len(header) < _BLOCK or header[257:265] != b"ustar\00000":
        if first:
            raise UsageError(
                "STO-L001", "the file is no exported log (not a ustar tar)"
            )
        raise TrustError("STO-L065", "the archive is cut or holds no ustar header")
    checksum = sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
    if header[148:156] != b"%06o\0 " % checksum or header[156:157] != b"0":
        raise TrustError("STO-L065", "a header is damaged or not of a plain file")
    name = header[:100].rstrip(b"\0").decode("ascii", errors="replace")
    if any(header[157:257]) or any(header[345:500]) or not _SIZE.match(header[124:136]):
        raise TrustError("STO-L065", f"the header of {name[:80]!r} is not a plain one")
    size = int(header[124:135], 8)
    if size > _bound(name):
        raise TrustError("STO-L065", f"{name[:80]!r} is not a log's file, or too large")
    return name, size


def _bound(name: str) -> int:
    """Return the most bytes that a file of this name may have; -1 for no such file."""
    if name == "checkpoint":
        return MAX_NOTE_BYTES
    if name == "policy.txt":
        return MAX_POLICY_BYTES
    if _RECORDS.fullmatch(name):
        return MAX_RECORDS_BYTES
    if _SOURCE.fullmatch(name):
        return ObjectKind.SOURCE.max_bytes
    try:
        return parse_tile_path(name).max_bytes
    except TrustError:
        return -1


def write_archive(file: BinaryIO, files: Iterable[tuple[str, bytes]]) -> None:
    """Write `files` (name, bytes) as an archive: same files, same bytes.

    Raises:
        OSError: the disk failed.
    """
    for name, data in files:
        file.write(_render_header(name, len(data)))
        file.write(data + bytes(-len(data) % _BLOCK))
    file.write(bytes(2 * _BLOCK))


def _render_header(name: str, size: int) -> bytes:
    assert _PLAIN_NAME.fullmatch(name)  # noqa: S101 - names are our own
    fields = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % 0
    head = name.encode().ljust(100, b"\0") + fields
    tail = (b"0" + bytes(100) + b"ustar\00000").ljust(_BLOCK - 156, b"\0")
    checksum = sum(head) + sum(tail) + 8 * ord(" ")
    return head + b"%06o\0 " % checksum + tail
