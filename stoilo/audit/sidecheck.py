"""Does the side store fit the log's leaves? First a quick yes or no, then where not.

The quick way reads records 256 at a time and compares the index as one number: the sum of
key * (place + 1) over all rows, exact. It tells whether there is a fault, not where, and
does not resist somebody who chooses rows on purpose: every reader of the index looks at
the record itself.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from stoilo.audit.leaf import Leaf, LeafKind, parse_leaf
from stoilo.audit.record import (
    Record,
    check_record,
    mentions,
    record_digest,
)
from stoilo.audit.side import ObjectKind, SideFault, SideStore, index_key
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["find_side_faults", "is_side_right"]

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
