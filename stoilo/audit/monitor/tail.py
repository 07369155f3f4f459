"""Read a log's new leaves, hash them, and take them only if the signed root follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.leaf import LeafKind
from stoilo.audit.merkle import leaf_hash
from stoilo.audit.tiles import (
    ENTRIES,
    TILE_WIDTH,
    decode_bundle,
    render_tile_path,
    tile_at,
)
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from stoilo.audit.checkpoint import Checkpoint
    from stoilo.audit.monitor.inspection import Inspection
    from stoilo.audit.monitor.mirror import Mirror
    from stoilo.audit.source import LogSource

__all__ = ["read_leaves"]

_ADMISSION = f"\n{LeafKind.ADMISSION}\n".encode()


def read_leaves(
    source: LogSource, mirror: Mirror, target: Checkpoint, inspection: Inspection
) -> None:
    """Extend `mirror` to the verified checkpoint `target`, inspecting each new leaf.

    To be called inside of a change of the state, which an error undoes.

    Raises:
        TrustError: ``STO-L122`` the entries do not lead to the signed root,
            ``STO-L030``, ``STO-L031`` a bundle is malformed or missing.
        UnreachableError: ``STO-L002``.
    """
    for number in range(mirror.size // TILE_WIDTH, -(-target.size // TILE_WIDTH)):
        start = mirror.size
        entries = _read_bundle(source, number, target.size)[start % TILE_WIDTH :]
        mirror.extend([leaf_hash(entry) for entry in entries])
        records = _read_records(source, number, entries)[start % TILE_WIDTH :]
        for place, entry in enumerate(entries, start):
            at = place - start
            inspection.take(place, entry, records[at] if at < len(records) else None)
    if mirror.root_at(target.size) != target.root:
        raise TrustError(
            "STO-L122",
            f"the entries shown for {target.size} leaves have another root than signed",
        )


def _read_bundle(source: LogSource, number: int, size: int) -> list[bytes]:
    tile = tile_at(ENTRIES, number, size)
    data = source.tile(tile)
    if data is None:
        data = source.tile(tile.full)
    if data is None:
        raise TrustError("STO-L031", f"{render_tile_path(tile)} is missing")
    return decode_bundle(data, tile.width)


def _read_records(
    source: LogSource, number: int, entries: list[bytes]
) -> list[bytes | None]:
    """Return the records of a tile; none while the server shows rubbish instead."""
    if all(_ADMISSION in entry[:32] for entry in entries):
        return []
    try:
        return source.records_of_tile(number)
    except TrustError:
        return []
