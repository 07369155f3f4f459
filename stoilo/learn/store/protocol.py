"""What the project's process and the process of a shard say to each other.

Typed records (msgpack), each a frame of `stoilo.core.frames` with a length of 8 bytes and no
more than `MOST_BYTES`. Nothing in a frame is code but the sources of update functions, which
the process judges and restricts as the server did. Any bytes end in a record or an error.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from stoilo.core import frames
from stoilo.core.errors import TrustError
from stoilo.learn.store.shards import Cell, Change, Push
from stoilo.learn.store.values import Encoded, decode_value, encode_value

MOST_BYTES = 256 << 20  # largest frame; a value or a range that does not fit is refused
# What one frame holds of values, unless the first alone has more.
BATCH_BYTES = 32 << 20
_BAD = "STO-T038"


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
    """Open the file of a shard of cells; the first request."""

    path: str
    functions: list[FunctionSource]


class OpenVectors(msgspec.Struct, frozen=True, tag="open_vectors"):
    """Begin a shard of vectors with ranges of so many entries; the first request."""

    path: str
    size: int


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


class PutRange(msgspec.Struct, frozen=True, tag="put"):
    """Set a vector's range to these doubles."""

    name: str
    body: bytes


class AddRange(msgspec.Struct, frozen=True, tag="add"):
    """Add these doubles to a vector's range."""

    name: str
    body: bytes


class GetRange(msgspec.Struct, frozen=True, tag="get"):
    """Give a vector's range."""

    name: str


class Calculate(msgspec.Struct, frozen=True, tag="calculate"):
    """Do a command of `stoilo.learn.store.vectors.VectorShard.do`."""

    command: str
    words: list[str]
    factor: float = 1.0


class SaveGeneration(msgspec.Struct, frozen=True, tag="save"):
    """Write the vectors; the answer is their generation."""


class KeepGeneration(msgspec.Struct, frozen=True, tag="keep"):
    """Let the generation that was written last stay."""


class LoadGeneration(msgspec.Struct, frozen=True, tag="load"):
    """Go back to a generation."""

    number: int


class Keys(msgspec.Struct, frozen=True, tag="keys"):
    """All keys."""

    keys: list[str]


class Cells(msgspec.Struct, frozen=True, tag="cells"):
    """Cells, from the first that was asked for on."""

    entries: list[Entry]


class Range(msgspec.Struct, frozen=True, tag="range"):
    """A vector's range."""

    body: bytes


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """What a calculation came to."""

    value: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done; `number` of cells that a push changed, or of the generation."""

    number: int = 0


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of ours, to be raised on the other side."""

    family: str
    code: str
    message: str


CellRequest = ListKeys | ReadCells | CreateCells | ApplyPush | AcceptCells | DropCells
VectorRequest = (
    PutRange
    | AddRange
    | GetRange
    | Calculate
    | SaveGeneration
    | KeepGeneration
    | LoadGeneration
)
Request = OpenShard | OpenVectors | CellRequest | VectorRequest
Response = Keys | Cells | Range | Scalar | Done | Refused

_REQUEST = msgspec.msgpack.Decoder(Request)
_RESPONSE = msgspec.msgpack.Decoder(Response)
T = TypeVar("T", Entry, OneChange)
R = TypeVar("R")


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


def open_entries(entries: Iterable[Entry]) -> Mapping[str, Cell]:
    """Return the cells of a frame by key."""
    return {entry.key: entry.open() for entry in entries}


def send_frame(connection: socket.socket, record: msgspec.Struct) -> int:
    """Send one record; return how many bytes that took.

    Raises:
        TrustError: ``STO-T038`` when it is too large; nothing was sent.
        OSError: the other side is gone.
    """
    body = msgspec.msgpack.encode(record)
    return frames.send_frame(connection, body, most=MOST_BYTES, code=_BAD, header=8)


def receive_request(connection: socket.socket) -> Request | None:
    """Return the next request, None when the caller has closed; raises ``STO-T038``."""
    return _decode(_REQUEST, connection)


def receive_response(connection: socket.socket) -> Response | None:
    """Return the next answer, None when the process is gone; raises ``STO-T038``."""
    return _decode(_RESPONSE, connection)


def _decode(decoder: msgspec.msgpack.Decoder[R], connection: socket.socket) -> R | None:
    body = frames.receive_frame(connection, most=MOST_BYTES, code=_BAD, header=8)
    try:
        return None if body is None else decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TrustError(
            _BAD, f"a message between server and shard: {str(error)[:200]}"
        ) from None
