"""The two databases: are they there, whole, of one log, and as old as each other?"""

from __future__ import annotations

import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.tiles import TILE_WIDTH
from stoilo.audit.log import database, seen, side, store
from stoilo.audit.log.database import LogDatabase, LogState, label_sum
from stoilo.audit.log.fsck_parts import Anchor, LogParts
from stoilo.audit.log.sqlite import connect
from stoilo.audit.log.store import HeadDatabase, HeadState

_WAL_HEADER = struct.Struct(">IIIIIIII")
_WAL_FRAME = struct.Struct(">IIIIII")
_WAL_MAGIC, _WAL_VERSION = 0x377F0682, 3007000
_COMPLAINTS = 100
_NAMED = 16
_SETTLE_S = 0.05  # a writer beside us is done with a page by then
_PAGE = re.compile(r"(?:[Pp]age|[Tt]ree) (\d+)")
# The tables that this version makes, by the text of their schema.
_SCHEMAS: dict[str, Sequence[str]] = {
    "head.sqlite": [store.SCHEMA],
    "log.sqlite": database.SCHEMA,
    "seen.sqlite": [seen.SCHEMA],
    "side.sqlite": [side.SCHEMA],
}


@dataclass(frozen=True, slots=True)
class FileFault:
    """Something wrong in an SQLite file."""

    place: str  # ``header``, ``page N`` or ``frame N``; empty when SQLite names none
    message: str  # what is wrong
    is_damage: bool = True  # False for what an interrupted write leaves as well


def check_database_file(path: Path) -> Iterator[FileFault]:
    """Yield what is wrong with the structure of an SQLite file; raises OSError."""
    if not path.is_file():  # a pipe would be waited for
        yield FileFault("", "it is no regular file")
        return
    if path.stat().st_size == 0:  # what a crash leaves before anything was written
        return
    try:
        with closing(connect(path, read_only=True)) as connection:
            query = f"PRAGMA integrity_check({_COMPLAINTS})"
            found = "\n".join(str(row[0]) for row in connection.execute(query))
    except (sqlite3.DatabaseError, UnicodeError) as error:
        yield FileFault("", f"SQLite cannot read it: {error}")
        return
    for line in found.splitlines():
        if line != "ok" and not line.startswith("*** in database"):
            page = _PAGE.search(line)
            yield FileFault(f"page {page.group(1)}" if page else "", line)


def check_write_ahead_log(path: Path) -> Iterator[FileFault]:
    """Yield the first frame of a ``-wal`` file whose checksum does not hold, if any.

    SQLite itself takes such a frame for the end, and so drops commits after it in silence
    (sqlite.org/fileformat2.html, section 4). A broken frame with a later commit behind it
    was whole once; in the last transaction it may be torn just as well, for nobody was
    told of that one then. Raises OSError.
    """
    with path.open("rb") as file:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return
        magic, version, page, _, *salt, first, second = _WAL_HEADER.unpack(header)
        order = ">" if magic & 1 else "<"
        sums = _checksum(header[:24], order, (0, 0))
        is_ours = (magic & ~1, version) == (_WAL_MAGIC, _WAL_VERSION)
        if not is_ours or sums != (first, second):
            yield FileFault("header", "it is not that of a whole write-ahead log")
            return
        broken = 0
        frames = iter(lambda: file.read(_WAL_FRAME.size + page), b"")
        for number, frame in enumerate(frames, 1):
            if len(frame) < _WAL_FRAME.size + page:
                break
            _, commit, *rest = _WAL_FRAME.unpack_from(frame)
            if rest[:2] != salt:
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


def check_structure(parts: LogParts) -> None:
    """Check every SQLite file of the log, and of what lies beside it, as a file."""
    if parts.paths is None:
        return
    folders = (parts.paths.database.parent, parts.paths.head.parent)
    for path in sorted(one for folder in folders for one in folder.glob("*.sqlite")):
        parts.demand_permission(path)
        _report(parts, path, check_database_file)
        _check_schema(parts, path)
        log = path.with_name(path.name + "-wal")
        if log.exists():
            _report(parts, log, check_write_ahead_log)


def _check_schema(parts: LogParts, path: Path) -> None:
    """Report tables that this version does not make.

    Missing ones are not named: a crash may have come before they were made, and whoever
    reads them misses them.
    """
    name = parts.name(path)
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in _SCHEMAS.get(path.name, ()):
            connection.executescript(statement)
        known = _read_schema(connection)

    def read() -> dict[bytes, bytes]:
        with closing(connect(path, read_only=True)) as connection:
            return _read_schema(connection)

    found = parts.guard(name, read) if path.name in _SCHEMAS else None
    for table, text in (found or {}).items():
        if known.get(table) != text:
            place = f"schema of {table.decode(errors='backslashreplace')!r}"
            message = "is not a table that this version makes"
            parts.fault("STO-L049", name, message, place=place)


def _read_schema(connection: sqlite3.Connection) -> dict[bytes, bytes]:
    connection.text_factory = bytes  # a flipped bit may end UTF-8
    query = "SELECT name, tbl_name, coalesce(sql, '') FROM sqlite_master"
    return {row[0]: row[1] + b"\n" + row[2] for row in connection.execute(query)}


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
    remedy = f"restore the newest backup of {base} (with no -wal beside it)"
    for one in faults:
        if one.is_damage:
            parts.fault("STO-L049", name, one.message, place=one.place, remedy=remedy)
        else:
            parts.notice("STO-L096", name, one.message, place=one.place)


# -- what they say of themselves ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class States:
    """What the databases say about themselves; None where there is no (readable) one."""

    log: LogState | None
    head: HeadState | None

    @property
    def acknowledged(self) -> int:
        """Leaves that the head database knows."""
        return self.head.head.size if self.head else 0


def read_head(parts: LogParts) -> HeadState | None:
    """Read what the head database remembers; None when it says nothing (reported)."""
    if parts.paths is None:
        return None
    path = parts.paths.head
    parts.demand_permission(path)
    with closing(HeadDatabase(path, read_only=True)) as head:
        return parts.guard(parts.name(path), head.load)


def read_states(parts: LogParts) -> States:
    """Read head and log state, the head first: a writer writes them the other way."""
    if parts.paths is None:
        return States(None, None)
    head = read_head(parts)
    path = parts.paths.database
    parts.demand_permission(path)
    with closing(LogDatabase(path, read_only=True)) as rows:
        return States(parts.guard(parts.name(path), rows.load), head)


def check_ages(
    parts: LogParts, states: States, anchor: Anchor | None, *, begun: bool
) -> None:
    """Report missing databases, foreign ones, and one older than the others.

    `begun` says whether anything of the log was published before.
    """
    if parts.paths is None:
        return
    log, head = parts.name(parts.paths.database), parts.name(parts.paths.head)
    for path, state, other in (
        (parts.paths.database, states.log, states.acknowledged),
        (parts.paths.head, states.head, states.log and states.log.frontier.size),
    ):
        name = parts.name(path)
        is_told = path.exists() and any(one.file == name for one in parts.findings)
        if state is None and (begun or anchor or other) and not is_told:
            text = "is gone or empty, but this log has been written before"
            parts.fault("STO-L041", name, text)
    published = anchor.checkpoint.size if anchor else 0
    acknowledged = states.acknowledged
    if states.log is not None and states.log.frontier.size < acknowledged:
        parts.fault(
            "STO-L041",
            log,
            f"holds {states.log.frontier.size} leaves, but {acknowledged} were "
            f"acknowledged: it is older than {head}",
        )
    if states.head is not None and acknowledged < published:
        text = f"knows {acknowledged} leaves, but {published} were published"
        parts.fault("STO-L041", head, text)
    tellers = ((log, states.log), (head, states.head))
    origins = {file: one.origin for file, one in tellers if one is not None}
    if anchor is not None:
        said = {anchor.file: anchor.checkpoint.origin}
        origins = said | origins if anchor.signed else origins | said
    right = next(iter(origins.values()), "")  # the most trusted is asked first
    for file, origin in origins.items():
        if origin != right:
            text = f"is of the log {origin!r}, the others are of {right!r}"
            parts.fault("STO-L048", file, text)


# -- rows ---------------------------------------------------------------------------


class LeafRows:
    """Reads blocks of 256 leaves; what cannot be read is reported once a block."""

    def __init__(self, parts: LogParts, path: Path) -> None:
        self.file = parts.name(path)
        self._parts = parts
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def block(self, index: int, width: int) -> list[bytes | None]:
        """Return the leaves of a block, None where there is no row."""
        start = index * TILE_WIDTH
        place = f"leaves {start} to {start + width - 1}"
        read = partial(self._rows, start, width)
        rows = dict(self._parts.guard(self.file, read, place) or [])
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
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


@contextmanager
def open_rows(parts: LogParts, states: States) -> Iterator[LeafRows | None]:
    """Open the log database's leaves; None where it is gone or has no such table."""
    if parts.paths is None or not parts.paths.database.exists():
        yield None
        return
    with closing(LeafRows(parts, parts.paths.database)) as rows:
        is_there = states.log is not None
        with suppress(sqlite3.DatabaseError, UnicodeError):
            rows.select("SELECT idx FROM leaves LIMIT 1").fetchall()
            is_there = True
        yield rows if is_there else None


def check_indexes(parts: LogParts, rows: LeafRows, damaged: frozenset[int]) -> None:
    """Check that the tables that find leaves point to the right ones.

    `damaged` are places of leaves already reported.
    """

    def read() -> list[tuple[str, str]]:
        with rows.snapshot():
            return list(islice(_wrong_rows(rows, damaged), _NAMED))

    for place, message in parts.guard(rows.file, read) or ():
        parts.fault("STO-L049", rows.file, message, place=place)


def _wrong_rows(rows: LeafRows, damaged: frozenset[int]) -> Iterator[tuple[str, str]]:
    states = rows.select("SELECT id, size, indexed FROM state").fetchall()
    if [row[0] for row in states] != [1]:
        yield "table state", f"holds {len(states)} rows, or its row is not row 1"
    if states:
        _, size, indexed = states[0]
        query = "SELECT idx FROM leaves WHERE idx < 0 OR idx >= ?"
        for (index,) in rows.select(query, size):
            yield f"leaf {index}", f"this row lies beyond the {size} leaves committed"
        yield from _wrong_places(rows, size, indexed, damaged)
        yield from _wrong_labels(rows, size)


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
        yield "table places", f"holds {count} of the first {indexed} leaves"


def _wrong_labels(rows: LeafRows, size: int) -> Iterator[tuple[str, str]]:
    query = (
        "SELECT label, idx, sum FROM labels "
        "WHERE typeof(label) = 'text' AND typeof(idx) = 'integer'"
    )
    for text, index, check in rows.select(query):
        label = text.decode(errors="backslashreplace")
        # No leaf covers a label: its row carries a sum of its own.
        if not 0 <= index < size or check != label_sum(label, index):
            yield (
                f"table labels, {label!r}",
                f"does not belong to leaf {index} of {size}",
            )
