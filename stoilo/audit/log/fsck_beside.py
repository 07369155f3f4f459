"""What lies beside the log: the side store's objects and the checkpoints seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import check_record
from stoilo.audit.log.fsck_databases import LeafRows
from stoilo.audit.log.fsck_parts import LogParts
from stoilo.audit.log.seen import SeenStore
from stoilo.audit.log.side import SideFault, SideStore, side_path
from stoilo.core.errors import StoiloError, TrustError

_CHUNK = 256
_MISSING = "its record is missing"
_NOT_INDEXED = "the index does not lead to it"
_NAMED = 100


def find_unfit_leaves(
    side: SideStore,  # opened for reading
    entries: Iterable[tuple[int, bytes]],  # leaves of the log (place, bytes), in order
) -> Iterator[tuple[int, str]]:
    """Yield each leaf that needs a record, with what is wrong about it, or with nothing."""
    waiting = iter(entries)
    while chunk := list(itertools.islice(waiting, _CHUNK)):
        leaves: list[tuple[int, Leaf]] = []
        found: dict[int, str] = {}
        for place, entry in chunk:
            try:
                leaf = parse_leaf(entry)
            except TrustError as error:  # not a leaf that this version writes
                found[place] = error.message
                continue
            if leaf.kind is not LeafKind.ADMISSION:
                leaves.append((place, leaf))
        texts = side.raw_records([leaf.digest for _, leaf in leaves])
        records = {}
        for place, leaf in leaves:
            try:
                found[place] = _MISSING
                if (data := texts.get(leaf.digest)) is not None:
                    records[place] = check_record(leaf, data)
                    found[place] = ""
            except TrustError as error:
                found[place] = error.message
        found |= dict.fromkeys(side.find_unindexed(records), _NOT_INDEXED)
        yield from sorted(found.items())


def check_beside(
    parts: LogParts,
    rows: LeafRows | None,  # the log database's leaves, None when there is none
    size: int,  # how many of them are acknowledged: their records must be there
    damaged: frozenset[int],  # places of leaves already reported
) -> None:
    """Check records, sources and seen checkpoints against their digests and leaves."""
    if parts.paths is None:
        return
    side = side_path(parts.top)
    if side.exists():
        name = parts.name(side)
        _report(parts, name, "STO-L141", parts.guard(name, lambda: _objects(side)))
        if rows is not None:
            leaves = (one for one in rows.acknowledged(size) if one[0] not in damaged)
            _check_leaves(parts, side, leaves, size)
    seen = side.with_name("seen.sqlite")
    if seen.exists():
        name = parts.name(seen)
        _report(parts, name, "STO-L141", parts.guard(name, lambda: list(_seen(seen))))


def _report(
    parts: LogParts, name: str, code: str, faults: list[SideFault] | None
) -> None:
    for one in (faults or [])[:_NAMED]:
        parts.fault(code, name, one.message, place=one.where)


def _objects(path: Path) -> list[SideFault]:
    with closing(SideStore.read_file(path)) as side:
        return list(side.scrub())


def _check_leaves(
    parts: LogParts, path: Path, leaves: Iterable[tuple[int, bytes]], size: int
) -> None:
    """Check each leaf's record; the newest may have no index yet."""
    name = parts.name(path)
    faults = parts.guard(name, lambda: _unfit(path, leaves)) or []
    newest = size - 1
    # The server adds rows to the index after the leaf: a crash leaves the newest
    # without.
    while faults and faults[-1] == (newest, _NOT_INDEXED):
        faults.pop()
        newest -= 1
    if newest < size - 1:
        text = "these leaves are not in the index yet; the server adds them"
        place = f"leaves {newest + 1} to {size - 1}"
        parts.notice("STO-L096", name, text, place=place)
    wrong = [SideFault(f"leaf {place}", problem) for place, problem in faults]
    _report(parts, name, "STO-L141", wrong)


def _unfit(path: Path, leaves: Iterable[tuple[int, bytes]]) -> list[tuple[int, str]]:
    with closing(SideStore.read_file(path)) as side:
        return [one for one in find_unfit_leaves(side, leaves) if one[1]]


def _seen(path: Path) -> Iterator[SideFault]:
    with closing(SeenStore(path, read_only=True)) as store:
        for place in range(store.size()):
            try:
                store.rows(place, place + 1)
            except StoiloError as error:
                yield SideFault(f"row {place}", error.message)
