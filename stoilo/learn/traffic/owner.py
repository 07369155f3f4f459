"""What a node's owner does with it: hand it bytes, and wait for what comes there."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from stoilo.core.digests import content_digest
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.traffic import wire as w


def give(
    place: ShardPlace,
    number: int,
    data: bytes,
    ids: tuple[str, ...] = (),
    least: int = w.LEAST_SEGMENT,
    training: str = "",
) -> w.Item:
    """Let the owner's node hold bytes, and return the item that they are.

    Args:
        place: the node's own connection file.
        number: of the version, or of the round.
        data: a version for all nodes; or (with `ids`) numbers of `holdings.WORD`.
        ids: whose contribution to the round it is.
        least: bytes of a segment, the same at all nodes; see `wire.cut`.
        training: whose version it is; none: a file, which volunteers may fetch.

    Raises:
        UnreachableError: ``STO-T037``, the node cannot take them.
        OSError: it is not there, or stands still.
    """
    cut = w.cut(number, data, ids, least, training)
    give_items(place, ((item, io.BytesIO(piece)) for item, piece in cut))
    return (
        cut[0][0]
        if len(cut) == 1
        else w.Item(number, content_digest(data), len(data), ids)
    )


def give_items(place: ShardPlace, items: Iterable[tuple[w.Item, BinaryIO]]) -> None:
    """Let the owner's node hold files, as `give`; they are read piece by piece."""
    with place.connect(w.STALL_S) as stream:
        for item, file in items:
            stream.settimeout(w.STALL_S)
            p.send_frame(stream, w.Give(item))
            w.receive(stream, p.Answer)
            w.send_bytes(stream, file)
            stream.settimeout(w.OWNER_S)  # it may have to write them
            w.receive(stream, p.Answer)


def collect(
    place: ShardPlace,
    number: int,
    ids: Sequence[str] = (),
    wait_s: float = 60.0,
    training: str = "",
) -> tuple[w.Item, bytes]:
    """Return a round's sum from the owner's node, or (no `ids`) a version, once it is there.

    When `wait_s` is over, of a sum as much as is there: `Item.ids` says whose it is. Of a
    `training` the newest version comes that is not before `number`.

    Raises:
        UnreachableError: ``STO-T037``, nothing of it came in time.
        OSError: the node is not there.
    """
    found, end = io.BytesIO(), time.monotonic() + wait_s + w.OWNER_S
    with place.connect(wait_s + w.STALL_S) as stream:
        p.send_frame(stream, w.Collect(number, sorted(ids), wait_s, training))
        item: w.Item | None = None
        while item is None or item.segment + 1 < item.of:
            item = w.receive(stream, w.Give).item
            found.writelines(w.receive_pieces(stream, item, end))
        p.send_frame(stream, w.DONE)
    data = found.getvalue()
    if item.of > 1:
        item = w.Item(item.number, content_digest(data), len(data), item.ids)
    return item, data
