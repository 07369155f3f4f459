"""What lies beside the log: the side store's objects and the checkpoints seen."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stoilo.audit.format.leaf import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.record import Record, check_record, mentions, record_digest
from stoilo.audit.format.tiles import parse_tile_path
from stoilo.audit.log.seen import PAGE_ROWS, SeenStore
from stoilo.audit.log.side import ObjectKind, SideFault, SideStore, index_key, side_path
from stoilo.audit.read.fsck_databases import LeafRows
from stoilo.audit.read.fsck_parts import LogParts
from stoilo.core.errors import StoiloError, TrustError

__all__ = ["check_beside", "check_strays", "find_side_faults", "is_side_right"]


_PUBLISHED = frozenset({"checkpoint", "policy.txt"})
_DATABASES = ("log.sqlite", "side.sqlite", "seen.sqlite", "head.sqlite")
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_BESIDE = frozenset({"lock", *(a + b for a in _DATABASES for b in _SUFFIXES)})
_TEMPORARY = ".tmp"


def check_strays(parts: LogParts) -> None:
    """Take notice of files that nothing of the log is kept in."""
    for path in _files(parts.files.path):
        name = str(path.relative_to(parts.files.path))
        if name not in _PUBLISHED and not _is_tile(name):
            _notice(parts, path)
    if parts.paths is None:
        return
    for folder in (parts.paths.database.parent, parts.paths.head.parent):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in _BESIDE and path != parts.files.path:
                _notice(parts, path)


def _files(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        yield from (Path(folder, name) for name in sorted(names))


def _is_tile(name: str) -> bool:
    try:
        parse_tile_path(name)
    except TrustError:
        return False
    return True


def _notice(parts: LogParts, path: Path) -> None:
    name = parts.name(path)
    if path.name.startswith(".") and path.name.endswith(_TEMPORARY):
        parts.found.notice("STO-L096", name, "an interrupted write left it")
    else:
        parts.found.notice("STO-L097", name, "does not belong to the log")


_CHUNK = 256
_OURS = msgspec.json.Decoder(Record)


def is_side_right(side: SideStore, entries: Iterable[tuple[int, bytes]]) -> bool:
    """Tell whether every leaf (place, bytes) has its record, and the index all of them.

    Args:
        side: opened for reading.
        entries: all leaves of the log from 0 on, in order.
    """
    expected = size = 0
    try:
        for chunk in _chunks(entries):
            size = chunk[-1][0] + 1
            expected += _weigh_records(side, chunk)
        found = sum(
            _weigh(key, place) for key, place in side.index_rows() if place < size
        )
    except TrustError:
        return False
    return found == expected


def _chunks(
    entries: Iterable[tuple[int, bytes]],
) -> Iterator[list[tuple[int, bytes]]]:
    waiting = iter(entries)
    while chunk := list(itertools.islice(waiting, _CHUNK)):
        yield chunk


def _weigh_records(side: SideStore, chunk: list[tuple[int, bytes]]) -> int:
    """Return what the index must hold for these leaves; raises TrustError for a fault."""
    leaves = [(place, parse_leaf(entry)) for place, entry in chunk]
    named = [one for one in leaves if one[1].kind is not LeafKind.ADMISSION]
    records = side.raw_records([leaf.digest for _, leaf in named])
    total = 0
    for place, leaf in named:
        record = _read(leaf, records.get(leaf.digest, b""))
        total += sum(
            _weigh(key, place) for key in {index_key(one) for one in mentions(record)}
        )
    return total


def _read(leaf: Leaf, data: bytes) -> Record:
    """Return a leaf's record: quickly where it is as we write them, else strictly.

    What encodes to the very same bytes has no second meaning.
    """
    try:
        record: Record = _OURS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return check_record(leaf, data)
    if (
        record.kind is leaf.kind is not LeafKind.REFUSALS
        and record.time == leaf.time
        and record_digest(data) == leaf.digest
        and msgspec.json.encode(record) == data
    ):
        return record
    return check_record(leaf, data)


def _weigh(key: bytes, place: int) -> int:
    return int.from_bytes(key, "big") * (place + 1)


def find_side_faults(
    side: SideStore, entries: Iterable[tuple[int, bytes]]
) -> Iterator[SideFault]:
    """Yield what does not fit between a log's leaves (place, bytes) and their records."""
    for place, entry in entries:
        leaf = parse_leaf(entry)
        if leaf.kind is LeafKind.ADMISSION:
            continue
        try:
            data = side.get(ObjectKind.RECORD, leaf.digest)
            if data is None:
                yield SideFault(f"leaf {place}", f"its record {leaf.digest} is missing")
                continue
            record = check_record(leaf, data)
        except TrustError as error:
            yield SideFault(f"leaf {place}", error.message)
            continue
        if not side.is_indexed(place, record):
            yield SideFault(f"leaf {place}", "the index does not lead to it")


_NAMED = 100
_BEFORE = "oldest leaves"
_MISSING = "is missing"
_NOT_INDEXED = "the index does not lead to it"


def check_beside(
    parts: LogParts, rows: LeafRows | None, size: int, damaged: frozenset[int]
) -> None:
    """Check records, sources and seen checkpoints against their digests and leaves.

    Args:
        parts: the log.
        rows: the log database's leaves, None when there is none.
        size: how many of them are acknowledged: their records must be there.
        damaged: places of leaves already reported.
    """
    if parts.paths is None:
        return
    side = side_path(parts.top)
    if side.exists():
        name = parts.name(side)
        objects = parts.guard(name, lambda: list(_objects(side))) or []
        _report(parts, name, "STO-L142", objects)
        if rows is not None:
            _check_leaves(parts, side, rows, size, damaged)
    seen = side.with_name("seen.sqlite")
    if seen.exists():
        name = parts.name(seen)
        faults = parts.guard(name, lambda: list(_seen(seen))) or []
        _report(parts, name, "STO-L132", faults)


def _report(parts: LogParts, name: str, code: str, faults: list[SideFault]) -> None:
    remedy = f"restore the newest backup of {name}"
    for one in faults[:_NAMED]:
        parts.found.fault(code, name, one.message, place=one.where, remedy=remedy)
    if len(faults) > _NAMED:
        text = f"{len(faults) - _NAMED} more objects or rows are wrong"
        parts.found.fault(code, name, text, remedy=remedy)


def _objects(path: Path) -> Iterator[SideFault]:
    side = SideStore.read_file(path)
    try:
        for one in side.scrub():
            if one.where != path.name:  # pages are checked for every database
                yield one
    finally:
        side.close()


def _check_leaves(
    parts: LogParts, path: Path, rows: LeafRows, size: int, damaged: frozenset[int]
) -> None:
    """Check each leaf's record; the oldest may have none, the newest no index yet."""
    name = parts.name(path)
    if not damaged and parts.guard(name, lambda: _is_right(path, rows, size)):
        return
    leaves = (one for one in rows.acknowledged(size) if one[0] not in damaged)
    faults = parts.guard(name, lambda: list(_unfit(path, leaves))) or []
    newest = size - 1
    while faults and faults[-1] == SideFault(f"leaf {newest}", _NOT_INDEXED):
        faults.pop()
        newest -= 1
    if newest < size - 1:
        text = "these leaves are not in the index yet; the server adds them"
        place = f"leaves {newest + 1} to {size - 1}"
        parts.found.notice("STO-L096", name, text, place=place)
    if faults and faults[0].where == _BEFORE:
        text = "leaves from before records were kept have none"
        parts.found.notice("STO-L096", name, text, place=faults.pop(0).message)
    _report(parts, name, "STO-L141", faults)


def _is_right(path: Path, rows: LeafRows, size: int) -> bool:
    side = SideStore.read_file(path)
    try:
        return is_side_right(side, rows.acknowledged(size))
    finally:
        side.close()


def _unfit(path: Path, leaves: Iterable[tuple[int, bytes]]) -> Iterator[SideFault]:
    """Yield what does not fit; first, as `_BEFORE`, how many leaves never had records."""
    side = SideStore.read_file(path)
    has_begun, before = False, ""
    try:
        for entry in leaves:
            found = list(_of_leaf(side, entry))
            is_missing = bool(found) and found[0].message.endswith(_MISSING)
            if not has_begun and is_missing:
                before = found[0].where
                continue
            if not has_begun and (found or _has_record(entry[1])):
                has_begun = True
                yield from [SideFault(_BEFORE, f"to {before}")] if before else []
            yield from found
        if not has_begun and before:
            yield SideFault(_BEFORE, f"to {before}")
    finally:
        side.close()


def _of_leaf(side: SideStore, entry: tuple[int, bytes]) -> Iterator[SideFault]:
    try:
        yield from find_side_faults(side, [entry])
    except TrustError as error:  # not a leaf that this version writes
        yield SideFault(f"leaf {entry[0]}", error.message)


def _has_record(entry: bytes) -> bool:
    return parse_leaf(entry).kind is not LeafKind.ADMISSION


def _seen(path: Path) -> Iterator[SideFault]:
    store = SeenStore(path, read_only=True)
    try:
        for number in range(-(-store.size() // PAGE_ROWS)):
            for place in range(number * PAGE_ROWS, (number + 1) * PAGE_ROWS):
                try:
                    store.rows(place, place + 1)
                except StoiloError as error:
                    yield SideFault(f"row {place}", error.message)
    finally:
        store.close()
