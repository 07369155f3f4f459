"""What lies beside the log: the side store's objects and the checkpoints seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.leaf import LeafKind, parse_leaf
from stoilo.audit.seen import PAGE_ROWS, SeenStore
from stoilo.audit.side import SideFault, SideStore, side_path
from stoilo.audit.sidecheck import find_side_faults, is_side_right
from stoilo.core.errors import StoiloError, TrustError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from stoilo.audit.fsck.leaves import LeafRows
    from stoilo.audit.fsck.parts import LogParts

__all__ = ["check_beside"]

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
