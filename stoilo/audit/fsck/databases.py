"""The two databases: are they there, whole, of one log, and as old as each other?"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.fsck.dbfile import (
    FileFault,
    check_database_file,
    check_write_ahead_log,
)
from stoilo.audit.fsck.fingerprint import is_index_right
from stoilo.audit.fsck.schema import find_schema_faults
from stoilo.audit.headdb import HeadDatabase, HeadState
from stoilo.audit.logdb import LogDatabase, LogState, label_sum
from stoilo.audit.merkle import leaf_hash
from stoilo.audit.sqlite import connect
from stoilo.core.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from stoilo.audit.fsck.anchor import Anchor
    from stoilo.audit.fsck.leaves import LeafRows
    from stoilo.audit.fsck.parts import LogParts

__all__ = [
    "States",
    "check_ages",
    "check_head_row",
    "check_indexes",
    "check_structure",
    "read_head",
    "read_states",
]

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
            "STO-L092",
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
        parts.found.fault("STO-L092", name, message, place=place, remedy=remedy)


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
            "STO-L092",
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
    codes = ("STO-L041", "STO-L042")
    for code, (path, state, other) in zip(codes, sizes, strict=True):
        if state is None and (begun or other) and not _is_reported(parts, path):
            name = parts.name(path)
            parts.found.fault(
                code,
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
    right = anchor.checkpoint.origin if anchor and anchor.is_signed else None
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
        parts.found.fault("STO-L091", rows.file, message, place=place, remedy=remedy)
    if count > _NAMED:
        message = f"{count - _NAMED} more rows are wrong"
        parts.found.fault("STO-L091", rows.file, message, remedy=remedy)


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
    first = indexed if is_index_right(rows, indexed) else 0
    count = first
    query = (
        "SELECT places.hash, places.idx, leaves.leaf FROM places "
        "LEFT JOIN leaves ON leaves.idx = places.idx "
        "WHERE typeof(hash) = 'blob' AND typeof(places.idx) = 'integer' "
        "AND typeof(leaf) IN ('blob', 'null') AND (places.idx >= ? OR places.idx < 0)"
    )
    for digest, index, leaf in rows.select(query, first):
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
    columns = [row[1].decode() for row in rows.select("PRAGMA table_info(labels)")]
    total = "sum" if "sum" in columns else "NULL"
    kinds = "typeof(label) = 'text' AND typeof(idx) = 'integer'"
    query = f"SELECT label, idx, {total} FROM labels WHERE {kinds}"  # noqa: S608 - our own words
    for text, index, check in rows.select(query):
        label = text.decode(errors="backslashreplace")
        place = f"table labels, {label!r}"
        if not 0 <= index < size:
            yield place, f"points to leaf {index} of {size}"
        elif check is not None and check != label_sum(label, index):
            yield place, "label or place was changed"
