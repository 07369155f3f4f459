"""The two databases: are they there, whole, of one log, and as old as each other?"""

from __future__ import annotations

import os
import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.tiles import TILE_WIDTH
from stoilo.audit.log import database, seen, side, store
from stoilo.audit.log.database import LogDatabase, LogState, label_sum
from stoilo.audit.log.sqlite import connect
from stoilo.audit.log.store import HeadDatabase, HeadState
from stoilo.audit.read.fsck_parts import Anchor, LogParts
from stoilo.core.errors import UnreachableError

_WAL_HEADER = struct.Struct(">IIIIIIII")
_WAL_FRAME = struct.Struct(">IIIIII")
_WAL_MAGIC = 0x377F0682
_WAL_VERSION = 3007000
_COMPLAINTS = 100
# The tables that this version makes, by the text of their schema.
_SCHEMAS: dict[str, Sequence[str]] = {
    "head.sqlite": [store.SCHEMA],
    "log.sqlite": database.SCHEMA,
    "seen.sqlite": [seen.SCHEMA],
    "side.sqlite": [side.SCHEMA],
}
_PAGE = re.compile(r"(?:[Pp]age|[Tt]ree) (\d+)")


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
    if path.stat().st_size == 0:  # what a crash leaves before anything was written
        return
    try:
        with closing(connect(path, read_only=True)) as connection:
            query = f"PRAGMA integrity_check({_COMPLAINTS})"
            for (text,) in connection.execute(query):
                yield from _complaints(str(text))
    except (sqlite3.DatabaseError, UnicodeError) as error:
        yield FileFault("", f"SQLite cannot read it: {error}")


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


def find_schema_faults(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the tables (place, message) of a database that this version does not make.

    Tables that are missing are not named: a crash may have come before they were made,
    and whoever reads them misses them.

    Raises:
        sqlite3.DatabaseError: the file cannot be read.
    """
    statements = _SCHEMAS.get(path.name)
    if statements is None:
        return
    with closing(connect(path, read_only=True)) as connection:
        found = _read_schema(connection)
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.executescript(statement)
        known = _read_schema(connection)
    for name, text in found.items():
        if known.get(name) != text:
            table = name.decode(errors="backslashreplace")
            yield f"schema of {table!r}", "is not a table that this version makes"


def _read_schema(connection: sqlite3.Connection) -> dict[bytes, bytes]:
    connection.text_factory = bytes  # a flipped bit may end UTF-8
    query = "SELECT name, tbl_name, coalesce(sql, '') FROM sqlite_master"
    return {row[0]: row[1] + b"\n" + row[2] for row in connection.execute(query)}


_SETTLE_S = 0.05  # a writer beside us is done with a page by then
_NAMED = 16


@dataclass(frozen=True, slots=True)
class States:
    """What the databases say about themselves; None where there is no (readable) one."""

    log: LogState | None
    head: HeadState | None


def read_head(parts: LogParts) -> HeadState | None:
    """Read what the head database remembers; None when it says nothing (reported)."""
    if parts.paths is None:
        return None
    _demand_permission(parts, parts.paths.head)
    head = HeadDatabase(parts.paths.head, read_only=True)
    try:
        return parts.guard(parts.name(parts.paths.head), head.load)
    finally:
        head.close()


def read_states(parts: LogParts) -> States:
    """Read head and log state, the head first: a writer writes them the other way."""
    if parts.paths is None:
        return States(None, None)
    head = read_head(parts)
    _demand_permission(parts, parts.paths.database)
    rows = LogDatabase(parts.paths.database, read_only=True)
    try:
        log = parts.guard(parts.name(parts.paths.database), rows.load)
    finally:
        rows.close()
    return States(log, head)


def check_head_row(parts: LogParts) -> None:
    """Check that the head database's one row is the one that the writer replaces."""
    if parts.paths is None or not parts.paths.head.exists():
        return
    name = parts.name(parts.paths.head)

    def read() -> list[tuple[int]]:
        with closing(connect(path, read_only=True)) as connection:
            return connection.execute("SELECT id FROM head").fetchall()

    path = parts.paths.head
    rows = parts.guard(name, read)
    if rows is not None and rows != [(1,)]:
        parts.found.fault(
            "STO-L049",
            name,
            f"holds {len(rows)} rows, or its row is not row 1",
            place="table head",
            remedy=f"restore the newest backup of {name}",
        )


def _demand_permission(parts: LogParts, path: Path) -> None:
    if path.exists() and not os.access(path, os.R_OK):
        raise UnreachableError(
            "STO-L002", f"{parts.name(path)} cannot be read: permission denied"
        )


def check_structure(parts: LogParts) -> None:
    """Check every SQLite file of the log, and of what lies beside it, as a file."""
    if parts.paths is None:
        return
    folders = (parts.paths.database.parent, parts.paths.head.parent)
    for path in sorted(one for folder in folders for one in folder.glob("*.sqlite")):
        _demand_permission(parts, path)
        _report(parts, path, check_database_file)
        _check_schema(parts, path)
        log = path.with_name(path.name + "-wal")
        if log.exists():
            _report(parts, log, check_write_ahead_log)


def _check_schema(parts: LogParts, path: Path) -> None:
    name = parts.name(path)
    found = parts.guard(name, lambda: list(find_schema_faults(path))) or []
    for place, message in found:
        remedy = f"restore the newest backup of {name}"
        parts.found.fault("STO-L049", name, message, place=place, remedy=remedy)


def _report(
    parts: LogParts, path: Path, check: Callable[[Path], Iterable[FileFault]]
) -> None:
    """Report what a check says twice: a writer beside us may be in the middle of it."""
    name = parts.name(path)
    faults = parts.guard(name, lambda: list(check(path))) or []
    if faults:
        time.sleep(_SETTLE_S)
        again = parts.guard(name, lambda: list(check(path))) or []
        faults = [one for one in faults if one in again]
    base = name.removesuffix("-wal")
    for one in faults:
        if not one.is_damage:
            parts.found.notice("STO-L096", name, one.message, place=one.place)
            continue
        parts.found.fault(
            "STO-L049",
            name,
            one.message,
            place=one.place,
            remedy=f"restore the newest backup of {base} (with no -wal beside it)",
        )


def check_ages(parts: LogParts, states: States, anchor: Anchor | None) -> None:
    """Report missing databases, foreign ones, and one older than the others."""
    if parts.paths is None:
        return
    log_name = parts.name(parts.paths.database)
    head_name = parts.name(parts.paths.head)
    _check_presence(parts, states, anchor)
    published = anchor.checkpoint.size if anchor else 0
    acknowledged = states.head.head.size if states.head else 0
    if states.log is not None and states.log.frontier.size < acknowledged:
        parts.found.fault(
            "STO-L043",
            log_name,
            f"holds {states.log.frontier.size} leaves, but {acknowledged} were "
            f"acknowledged: it is older than {head_name}",
            remedy=f"restore the newest backup of {log_name}",
        )
    if states.head is not None and acknowledged < published:
        parts.found.fault(
            "STO-L045",
            head_name,
            f"knows {acknowledged} leaves, but {published} were published",
            remedy=f"restore the newest backup of {head_name}",
        )
    _check_origins(parts, states, anchor)


def _check_presence(parts: LogParts, states: States, anchor: Anchor | None) -> None:
    assert parts.paths is not None  # noqa: S101 - the caller looked
    begun = anchor is not None or bool(parts.tiles())
    sizes = (
        (parts.paths.database, states.log, states.head and states.head.head.size),
        (parts.paths.head, states.head, states.log and states.log.frontier.size),
    )
    for path, state, other in sizes:
        if state is None and (begun or other) and not _is_reported(parts, path):
            name = parts.name(path)
            parts.found.fault(
                "STO-L041",
                name,
                "is gone or empty, but this log has been written before",
                remedy=f"restore the newest backup of {name}",
            )


def _is_reported(parts: LogParts, path: Path) -> bool:
    name = parts.name(path)
    return path.exists() and any(one.file == name for one in parts.found.kept)


def _check_origins(parts: LogParts, states: States, anchor: Anchor | None) -> None:
    assert parts.paths is not None  # noqa: S101 - the caller looked
    known: dict[str, str] = {}
    if states.log is not None:
        known[parts.name(parts.paths.database)] = states.log.origin
    if states.head is not None:
        known[parts.name(parts.paths.head)] = states.head.origin
    if anchor is not None:
        known[anchor.file] = anchor.checkpoint.origin
    right = anchor.checkpoint.origin if anchor and anchor.signed else None
    right = right or next(iter(known.values()), None)
    for file, origin in known.items():
        if origin != right:
            parts.found.fault(
                "STO-L048",
                file,
                f"is of the log {origin!r}, the others are of {right!r}",
                remedy=f"restore the right {file}",
            )


def check_indexes(parts: LogParts, rows: LeafRows, damaged: frozenset[int]) -> None:
    """Check that the tables that find leaves point to the right ones.

    `damaged` are places of leaves already reported.
    """
    wrong: list[tuple[str, str]] = []

    def collect() -> int:
        count = 0
        for count, one in enumerate(_wrong_indexes(rows, damaged), 1):  # noqa: B007 - counted
            if len(wrong) < _NAMED:
                wrong.append(one)
        return count

    count = parts.guard(rows.file, collect) or 0
    remedy = f"restore the newest backup of {rows.file}"
    for place, message in wrong:
        parts.found.fault("STO-L049", rows.file, message, place=place, remedy=remedy)
    if count > _NAMED:
        message = f"{count - _NAMED} more rows are wrong"
        parts.found.fault("STO-L049", rows.file, message, remedy=remedy)


def _wrong_indexes(
    rows: LeafRows, damaged: frozenset[int]
) -> Iterator[tuple[str, str]]:
    with rows.snapshot():
        states = rows.select("SELECT id, size, indexed FROM state").fetchall()
        if states and [row[0] for row in states] != [1]:
            yield "table state", f"holds {len(states)} rows, or its row is not row 1"
        if states:
            _, size, indexed = states[0]
            yield from _wrong_leaves(rows, size)
            yield from _wrong_places(rows, size, indexed, damaged)
            yield from _wrong_labels(rows, size)


def _wrong_leaves(rows: LeafRows, size: int) -> Iterator[tuple[str, str]]:
    query = "SELECT idx FROM leaves WHERE idx < 0 OR idx >= ? LIMIT 16"
    for (index,) in rows.select(query, size):
        yield f"leaf {index}", f"this row lies beyond the {size} leaves committed"


def _wrong_places(
    rows: LeafRows, size: int, indexed: int, damaged: frozenset[int]
) -> Iterator[tuple[str, str]]:
    count = 0
    query = (
        "SELECT places.hash, places.idx, leaves.leaf FROM places "
        "LEFT JOIN leaves ON leaves.idx = places.idx "
        "WHERE typeof(hash) = 'blob' AND typeof(places.idx) = 'integer' "
        "AND typeof(leaf) IN ('blob', 'null')"
    )
    for digest, index, leaf in rows.select(query):
        count += index < indexed  # later ones may be on their way into the table
        if index in damaged:
            continue
        if leaf is None or not 0 <= index < size or leaf_hash(leaf) != digest:
            place = f"table places, hash {digest.hex()}"
            yield place, f"does not belong to leaf {index}"
    if count != indexed:
        message = f"holds {count} of the first {indexed} leaves"
        yield "table places", message


def _wrong_labels(rows: LeafRows, size: int) -> Iterator[tuple[str, str]]:
    query = (
        "SELECT label, idx, sum FROM labels "
        "WHERE typeof(label) = 'text' AND typeof(idx) = 'integer'"
    )
    for text, index, check in rows.select(query):
        label = text.decode(errors="backslashreplace")
        place = f"table labels, {label!r}"
        if not 0 <= index < size:
            yield place, f"points to leaf {index} of {size}"
        elif check != label_sum(label, index):
            yield place, "label or place was changed"


class LeafRows:
    """Reads blocks of 256 leaves; what cannot be read is reported once a block."""

    def __init__(self, parts: LogParts, path: Path) -> None:
        self.file = parts.name(path)
        self._parts = parts
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def is_there(self) -> bool:
        """Tell whether the table of leaves can be read at all; closes it when not."""
        try:
            self.select("SELECT idx FROM leaves LIMIT 1").fetchall()
        except (sqlite3.DatabaseError, UnicodeError):
            self.close()
            return False
        return True

    def block(self, index: int, width: int) -> list[bytes | None]:
        """Return the leaves of a block, None where there is no row."""
        start = index * TILE_WIDTH
        place = f"leaves {start} to {start + width - 1}"
        rows = dict(
            self._parts.guard(self.file, lambda: self._rows(start, width), place) or []
        )
        return [rows.get(start + at) for at in range(width)]

    def acknowledged(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rows below `size` that can be read: place and leaf."""
        for index in range(-(-size // TILE_WIDTH)):
            start = index * TILE_WIDTH
            read = partial(self._rows, start, min(TILE_WIDTH, size - start))
            yield from self._parts.guard(self.file, read) or ()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all that is read inside be of one moment, beside a writer."""
        self.select("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self.select("ROLLBACK")

    def select(self, query: str, *values: int) -> sqlite3.Cursor:
        """Run a query of our own; raises sqlite3.DatabaseError."""
        if self._connection is None:
            self._connection = connect(self._path, read_only=True)
            self._connection.text_factory = bytes  # a flipped bit may end UTF-8
        return self._connection.execute(query, values)

    def _rows(self, start: int, width: int) -> list[tuple[int, bytes]]:
        query = (
            "SELECT idx, leaf FROM leaves "
            "WHERE idx >= ? AND idx < ? AND typeof(leaf) = 'blob'"
        )
        return self.select(query, start, start + width).fetchall()

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            with suppress(sqlite3.Error), closing(self._connection):
                pass
            self._connection = None
