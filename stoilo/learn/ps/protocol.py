"""What a parameter server and the process of a shard say to each other.

Typed records (msgpack), each a frame: 8 bytes of length, then so many bytes and no more
than `MOST_BYTES`. Nothing in a frame is code but the sources of update functions, which
the process judges and restricts as the server did. Any bytes end in a record or an error.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from stoilo.core.errors import TrustError
from stoilo.learn.ps.shards import Cell, Change, Push
from stoilo.learn.ps.values import Encoded, decode_value, encode_value

__all__ = [
    "BATCH_BYTES",
    "MOST_BYTES",
    "AcceptCells",
    "ApplyPush",
    "Cells",
    "CreateCells",
    "Done",
    "DropCells",
    "Entry",
    "FunctionSource",
    "Keys",
    "ListKeys",
    "OneChange",
    "OpenShard",
    "ReadCells",
    "Refused",
    "Request",
    "Response",
    "batches",
    "decode_push",
    "encode_push",
    "open_entries",
    "receive_request",
    "receive_response",
    "send_frame",
]

MOST_BYTES = 256 << 20
"""Largest frame; a value that does not fit is refused."""
BATCH_BYTES = 32 << 20
"""What one frame holds of values, unless the first alone has more."""
_LENGTH_BYTES = 8
_PIECE = 1 << 20


class FunctionSource(msgspec.Struct, frozen=True):
    """An update function as it travels."""

    name: str
    source: str
    entry: str
    digest: str


class Entry(msgspec.Struct, frozen=True):
    """A cell."""

    key: str
    form: str
    body: bytes
    version: int = 0
    marks: dict[str, int] = {}

    @classmethod
    def of(cls, key: str, cell: Cell) -> Entry:
        """Return `cell` as it travels; raises ``STO-T068`` for what is no value."""
        value = encode_value(cell.value)
        return cls(key, value.form, value.body, cell.version, dict(cell.marks))

    def open(self) -> Cell:
        """Return the cell; raises ``STO-T069``."""
        value = decode_value(Encoded(self.form, self.body))
        return Cell(value, self.version, self.marks)


class OneChange(msgspec.Struct, frozen=True):
    """A change of a push."""

    key: str
    function: str
    form: str
    body: bytes


class OpenShard(msgspec.Struct, frozen=True, tag="open"):
    """Open the file; the first request."""

    path: str
    functions: list[FunctionSource]


class ListKeys(msgspec.Struct, frozen=True, tag="list"):
    """Give all keys."""


class ReadCells(msgspec.Struct, frozen=True, tag="read"):
    """Give cells: at least the first, as many as a frame holds."""

    keys: list[str]


class CreateCells(msgspec.Struct, frozen=True, tag="create"):
    """Make those that are not there."""

    entries: list[Entry]


class ApplyPush(msgspec.Struct, frozen=True, tag="apply"):
    """Apply a push."""

    source: str
    sequence: int
    changes: list[OneChange]


class AcceptCells(msgspec.Struct, frozen=True, tag="accept"):
    """Take over cells."""

    entries: list[Entry]


class DropCells(msgspec.Struct, frozen=True, tag="drop"):
    """Forget cells."""

    keys: list[str]


class Keys(msgspec.Struct, frozen=True, tag="keys"):
    """All keys."""

    keys: list[str]


class Cells(msgspec.Struct, frozen=True, tag="cells"):
    """Cells, from the first that was asked for on."""

    entries: list[Entry]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done; `changed` cells of a push."""

    changed: int = 0


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of ours, to be raised on the other side."""

    family: str
    code: str
    message: str


Request = (
    OpenShard | ListKeys | ReadCells | CreateCells | ApplyPush | AcceptCells | DropCells
)
Response = Keys | Cells | Done | Refused

_REQUEST = msgspec.msgpack.Decoder(Request)
_RESPONSE = msgspec.msgpack.Decoder(Response)
T = TypeVar("T", Entry, OneChange)


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists that fit a frame."""
    batch: list[T] = []
    size = 0
    for item in items:
        weight = len(item.body) + len(item.key) + len(item.form)
        if batch and size + weight > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += weight
    if batch:
        yield batch


def encode_push(push: Push) -> Iterator[ApplyPush]:
    """Yield a push as frames hold it: each key has marks of its own."""
    for changes in batches(map(_change, push.changes)):
        yield ApplyPush(push.source, push.sequence, changes)


def _change(change: Change) -> OneChange:
    value = encode_value(change.change)
    return OneChange(change.key, change.function, value.form, value.body)


def decode_push(request: ApplyPush) -> Push:
    """Return the push; raises ``STO-T069`` for bytes that are no value."""
    changes = [
        Change(one.key, one.function, decode_value(Encoded(one.form, one.body)))
        for one in request.changes
    ]
    return Push(request.source, request.sequence, changes)


def send_frame(connection: socket.socket, record: msgspec.Struct) -> None:
    """Send one record.

    Raises:
        TrustError: ``STO-T038`` when it is too large.
        OSError: the other side is gone.
    """
    body = msgspec.msgpack.encode(record)
    if len(body) > MOST_BYTES:
        raise _bad(f"{len(body)} bytes are more than a frame holds")
    connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big"))
    connection.sendall(body)


def receive_request(connection: socket.socket) -> Request | None:
    """Return the next request, None when the caller has closed; raises ``STO-T038``."""
    return _decode(_REQUEST, _receive_frame(connection))


def receive_response(connection: socket.socket) -> Response | None:
    """Return the next answer, None when the process is gone; raises ``STO-T038``."""
    return _decode(_RESPONSE, _receive_frame(connection))


R = TypeVar("R")


def _decode(decoder: msgspec.msgpack.Decoder[R], body: bytes | None) -> R | None:
    try:
        return None if body is None else decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(str(error)[:200]) from None


def _receive_frame(connection: socket.socket) -> bytes | None:
    head = _receive(connection, _LENGTH_BYTES)
    if head is None:
        return None
    length = int.from_bytes(head, "big")
    if length > MOST_BYTES:
        raise _bad(f"a frame of {length} bytes")
    return _receive(connection, length)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    """Return `size` bytes, None when the stream ended before; memory grows with them."""
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(min(size - len(found), _PIECE))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _bad(why: str) -> TrustError:
    return TrustError("STO-T038", f"a message between server and shard: {why}")


def open_entries(entries: Iterable[Entry]) -> Mapping[str, Cell]:
    """Return the cells of a frame by key."""
    return {entry.key: entry.open() for entry in entries}
