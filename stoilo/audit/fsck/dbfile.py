"""Is an SQLite file whole? Header, structure and write-ahead log; read-only.

SQLite keeps no checksums in its pages. What a page means is checked by whoever reads
its rows; this module checks what holds the rows together. Bytes that mean nothing
(the unused part of a page) are not covered.
Source: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import re
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from stoilo.audit.sqlite import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FileFault", "check_database_file", "check_write_ahead_log"]

_MAGIC = b"SQLite format 3\0"
_HEADER = struct.Struct(">16sHBBBBBBIIIIIIIIIIII20sII")
_WAL_HEADER = struct.Struct(">IIIIIIII")
_WAL_FRAME = struct.Struct(">IIIIII")
_WAL_MAGIC = 0x377F0682
_WAL_VERSION = 3007000
_COMPLAINTS = 100
_PAGE = re.compile(r"(?:[Pp]age|[Tt]ree) (\d+)")
_UTF8 = 1
_SCHEMA_FORMAT = 4
_USER_VERSIONS = frozenset({0, 1})  # the side store numbers its own


@dataclass(frozen=True, slots=True)
class FileFault:
    """Something wrong in an SQLite file.

    Attributes:
        place: ``header``, ``page N`` or ``frame N``; empty when SQLite names none.
        message: what is wrong.
        is_damage: False for what an interrupted write leaves as well.
    """

    place: str
    message: str
    is_damage: bool = True


def check_database_file(path: Path) -> Iterator[FileFault]:
    """Yield what is wrong with the structure of an SQLite file.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():  # a pipe would be waited for
        yield FileFault("", "it is no regular file")
        return
    with path.open("rb") as file:
        header = file.read(100)
    size = path.stat().st_size
    if size == 0:  # what a crash leaves before anything was written
        return
    faults = _header_faults(header)
    yield from (FileFault("header", text) for text in faults)
    if not path.with_name(path.name + "-wal").exists():  # else it grows from there
        yield from (FileFault("header", text) for text in _size_faults(header, size))
    try:
        with closing(connect(path, read_only=True)) as connection:
            query = f"PRAGMA integrity_check({_COMPLAINTS})"
            for (text,) in connection.execute(query):
                yield from _complaints(str(text))
    except (sqlite3.DatabaseError, UnicodeError) as error:
        yield FileFault("", f"SQLite cannot read it: {error}")


def _header_faults(header: bytes) -> Iterator[str]:
    """Yield what in the first 100 bytes is not what this SQLite writes."""
    if len(header) < _HEADER.size:
        yield f"the file ends after {len(header)} bytes"
        return
    (
        magic, page, write_format, read_format, reserved, most, least, leaf,
        changes, pages, _first_free, free, _cookie, schema_format, cache, largest,
        encoding, user, vacuum, application, expansion, valid_for, _version,
    ) = _HEADER.unpack(header)  # fmt: skip
    expected = {
        "magic string": magic == _MAGIC,
        "page size": page in {1, *(1 << bit for bit in range(9, 16))},
        "file format version": write_format == read_format and read_format in {1, 2},
        "reserved space": reserved == 0,
        "payload fractions": (most, least, leaf) == (64, 32, 32),
        "free page count": free < max(pages, 1),
        "schema format": schema_format in {0, _SCHEMA_FORMAT},
        "cache size": cache == 0,
        "auto-vacuum fields": largest == 0 and vacuum == 0,
        "text encoding": encoding in {0, _UTF8},
        "user fields": user in _USER_VERSIONS and application == 0,
        "expansion space": not any(expansion),
        "change counter": changes == valid_for,
    }
    yield from (
        f"the {name} is not what SQLite writes"
        for name, is_right in expected.items()
        if not is_right
    )


def _size_faults(header: bytes, size: int) -> Iterator[str]:
    if len(header) < _HEADER.size:
        return
    page, pages = _HEADER.unpack(header)[1], _HEADER.unpack(header)[9]
    width = 65536 if page == 1 else page
    if pages * width != size:
        yield f"{pages} pages of {width} bytes were written, the file has {size} bytes"


def _complaints(text: str) -> Iterator[FileFault]:
    for line in text.splitlines():
        if line == "ok" or line.startswith("*** in database"):
            continue
        page = _PAGE.search(line)
        yield FileFault(f"page {page.group(1)}" if page else "", line)


def check_write_ahead_log(path: Path) -> Iterator[FileFault]:
    """Yield the first frame of a ``-wal`` file whose checksum does not hold, if any.

    A broken frame with a later commit behind it was whole once. In the last transaction
    it may be torn just as well, for nobody was told of that one then.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return
        magic, version, page, _, *salt, first, second = _WAL_HEADER.unpack(header)
        if magic & ~1 != _WAL_MAGIC or version != _WAL_VERSION:
            yield FileFault("header", "the magic number is not that of a WAL")
            return
        order = ">" if magic & 1 else "<"
        sums = _checksum(header[:24], order, (0, 0))
        if sums != (first, second):
            yield FileFault("header", "the header's checksum does not hold")
            return
        yield from _broken_frames(file, page, (salt[0], salt[1]), order, sums)


def _broken_frames(
    file: BinaryIO,
    page: int,
    salt: tuple[int, int],
    order: str,
    sums: tuple[int, int],
) -> Iterator[FileFault]:
    """Follow the chain of checksums through the frames of the newest salt."""
    broken = 0
    frames = iter(lambda: file.read(_WAL_FRAME.size + page), b"")
    for number, frame in enumerate(frames, 1):
        if len(frame) < _WAL_FRAME.size + page:
            break
        _, commit, *rest = _WAL_FRAME.unpack_from(frame)
        if tuple(rest[:2]) != salt:
            continue  # left from before the last checkpoint of the WAL
        if broken and commit:
            text = "its checksum does not hold, though later commits follow"
            yield FileFault(f"frame {broken}", text)
            return
        if not broken:
            sums = _checksum(frame[:8] + frame[_WAL_FRAME.size :], order, sums)
            broken = number if sums != tuple(rest[2:]) else 0
    if broken:
        text = "its checksum does not hold; the last transaction is void"
        yield FileFault(f"frame {broken}", text, is_damage=False)


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's Fibonacci-weighted sums over pairs of 32-bit words."""
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second
