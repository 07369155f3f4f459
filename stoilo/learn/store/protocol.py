"""What is asked of a shard: one record for each command, in this process and between two.

A shard answers commands (`Command`), whoever calls it. Between processes each is a frame of
`stoilo.core.frames` (msgpack, a length of 8 bytes, no more than `MOST_BYTES`); `Answer` or
`Refused` comes back. Nothing in a frame is code but the sources of update functions, which
the process judges and restricts as the server did. Any bytes end in a record or an error.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from stoilo.core import frames
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.learn.core.optimizers import KINDS, Optimizer
from stoilo.learn.core.tensors import Array
from stoilo.learn.store.values import Value, decode, encode

MOST_BYTES = 256 << 20  # largest frame; a value or a range that does not fit is refused
# What one frame holds of values, unless the first alone has more.
BATCH_BYTES = 32 << 20
NEWEST = -1
_BAD = "STO-T038"
T_co = TypeVar("T_co", covariant=True)


class Change(msgspec.Struct, frozen=True):
    """One change of a push: ``value = function(value, change)``."""

    key: str
    function: str  # or an optimiser: then the change is a gradient
    change: Value
    # Of an optimiser's rate: a schedule's, and what a late gradient is worth
    factor: float = 1.0


class Push(msgspec.Struct, frozen=True):
    """Changes that come together, from one source."""

    source: str  # who pushes, ``run/worker``; a worker is a part of the data
    # Grows with each push of that source; the same in a repetition. A source begins a
    # push only when the one before is acknowledged.
    sequence: int
    changes: Sequence[Change]  # at most one of each key

    def __post_init__(self) -> None:
        """Refuse a second change of a key: it would count as a repetition."""
        if len({change.key for change in self.changes}) < len(self.changes):
            raise UsageError("STO-T074", "a push changes a key twice")


class Slot(msgspec.Struct, frozen=True):
    """What an optimiser keeps of one value."""

    name: str  # the optimiser's
    # Its own state: arrays, and the table that names them
    tensors: dict[str, Array] = {}
    plain: dict[str, Any] = {}
    run: str = ""  # whose pushes have an order now
    turn: int = 0  # how many of them are applied
    # By ``sequence/worker``: what came before its turn, and its factor
    waiting: dict[str, tuple[Array, float]] = {}


class Cell(msgspec.Struct, frozen=True):
    """A value and its history."""

    value: Value  # not to be changed in place
    version: int = 0  # how many pushes are in, those that wait for their turn too
    # Per source, the last push that is in
    marks: dict[str, int] = {}
    slot: Slot | None = None


class ShardOptimizer(msgspec.Struct, frozen=True, tag="optimizer"):
    """An optimiser at the shards: its state never leaves them.

    Steps of an optimiser depend on their order. Either `order` names the workers (data
    parts): pushes then count by clock and, within one, in this order, whenever they come,
    and each of the workers pushes each of its keys at each clock, from 0 on. Or the caller
    declares that pushes may count as they come.
    """

    name: str  # how pushes call it
    kind: str  # of `stoilo.learn.core.optimizers.KINDS`
    options: dict[str, float | bool | list[float]] = {}  # of its class
    order: list[str] = []
    commutes: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no optimiser, or has no order."""
        try:
            self.make()
        except (LookupError, TypeError) as error:
            raise _no_optimizer(f"{self.kind[:40]!r}: {str(error)[:160]}") from None
        if bool(self.order) == self.commutes or len(set(self.order)) < len(self.order):
            raise _no_optimizer("either the order of workers or that pushes commute")

    def make(self) -> Optimizer:
        """Return a fresh optimiser."""
        return KINDS[self.kind](**cast("dict[str, Any]", self.options))

    @property
    def digest(self) -> str:
        """Of all that decides what it does."""
        return content_digest(msgspec.json.encode(self, order="sorted"))


def _no_optimizer(why: str) -> UsageError:
    return UsageError("STO-T040", f"this is no optimiser for shards: {why}")


class FunctionSource(msgspec.Struct, frozen=True, tag="function"):
    """An update function as it travels."""

    name: str
    source: str
    entry: str
    digest: str


class Command(msgspec.Struct, Generic[T_co], frozen=True):
    """Something that is asked of a shard, and what it is answered with."""


class OpenShard(Command[None], frozen=True, tag="open"):
    """Open the file of a shard; the first command to a process."""

    path: str
    functions: list[FunctionSource | ShardOptimizer]


class ListKeys(Command[list[str]], frozen=True, tag="list"):
    """Give all keys, sorted."""


class ReadCells(Command[dict[str, Cell]], frozen=True, tag="read"):
    """Give cells of one moment: between processes at least the first."""

    keys: list[str]


class Tagged(msgspec.Struct, frozen=True):
    """One version of a value: immutable, known by its tag."""

    # SHA-256 of its encoding: the same that names the value as a blob of a project
    tag: str
    size: int  # of the encoding, bytes
    value: Value | None = None  # None: the reader has it, or it is at the project


class ReadTagged(Command[dict[str, Tagged]], frozen=True, tag="tagged"):
    """Give values of one moment that the reader has not: in parts as `ReadCells`."""

    known: dict[str, str]  # by key, the tag of the version that the reader has; or ""


class PublishCells(Command[dict[str, Tagged]], frozen=True, tag="publish"):
    """Store the present versions at the project, as blobs that tasks may name."""

    keys: list[str]
    together: bool = False  # as one blob, by key; it is answered under an empty key


class CreateCells(Command[None], frozen=True, tag="create"):
    """Make those that are not there; the others stay as they are."""

    values: dict[str, Value]


class ApplyPush(Command[int], frozen=True, tag="apply"):
    """Apply what is new of a push, all of it or nothing; give how many cells changed."""

    push: Push


class AcceptCells(Command[None], frozen=True, tag="accept"):
    """Take over cells from another shard, history included."""

    cells: dict[str, Cell]


class DropCells(Command[None], frozen=True, tag="drop"):
    """Forget cells that another shard has taken over."""

    keys: list[str]


class OfSpace(Command[T_co], frozen=True):
    """Of vectors in a space: they end with the stream that began it."""

    space: str


class PutRange(OfSpace[None], frozen=True, tag="put"):
    """Set a vector's range."""

    name: str
    values: Array


class GetRange(OfSpace[Array], frozen=True, tag="get"):
    """Give a vector's range: for snapshots only."""

    name: str


class Calculate(OfSpace[float], frozen=True, tag="calculate"):
    """Calculate with vectors of these names; give a scalar, 0 where there is none.

    ``zero t s``: as many zeros as s has entries · ``assign t s``: t = factor·s ·
    ``axpy t s``: t = t + factor·s · ``drop t`` · ``dot a b`` · ``largest a``: its largest
    absolute entry · ``total a``: the sum of its absolute entries.
    """

    command: str
    words: list[str]
    factor: float = 1.0


class RoundRange(OfSpace[Array], frozen=True, tag="round"):
    """Round a vector's range as the parameters' types do; give it in the widest of them."""

    name: str
    kinds: list[tuple[str, int]]  # numpy's type of so many entries, one after the other


class PublishRange(OfSpace[Tagged], frozen=True, tag="publish range"):
    """Round a range as `RoundRange` does, and store it at the project."""

    name: str
    key: str  # of the range in the blob
    kinds: list[tuple[str, int]]


class Taken(msgspec.Struct, frozen=True):
    """What is known of an answer whose arrays a shard has taken."""

    fault: str  # what is wrong with its form; empty when nothing is
    loss_sum: float = 0.0
    correct: int = -1


class TakeAnswer(OfSpace[Taken], frozen=True, tag="take"):
    """Fetch a task's value from the project, check it and keep its range as a vector."""

    name: str
    task: str
    start: int  # where the range begins
    stop: int
    forms: dict[str, tuple[str, tuple[int, ...]]]  # of all arrays, in their order
    version: int  # as `stoilo.learn.kernels.checks.find_fault` expects it, and so on
    samples: int
    least_loss: float | None
    lacking: list[str]


class ListVectors(OfSpace[list[str]], frozen=True, tag="names"):
    """Give the names of a space's vectors, sorted."""


class SaveGeneration(OfSpace[int], frozen=True, tag="save"):
    """Write the vectors; give their generation, 0 where a shard has no file."""


class KeepGeneration(OfSpace[None], frozen=True, tag="keep"):
    """Let the generation that was written last stay, however many come after it."""


class LoadGeneration(OfSpace[None], frozen=True, tag="load"):
    """Begin a space: with a generation, or with nothing (0); what came later is forgotten."""

    number: int  # `NEWEST`: the one that was written last


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What a command came to: an encoded value of its own type."""

    body: bytes


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of ours, to be raised on the other side."""

    family: str
    code: str
    message: str


Request = (
    OpenShard
    | ListKeys
    | ReadCells
    | ReadTagged
    | PublishCells
    | CreateCells
    | ApplyPush
    | AcceptCells
    | DropCells
    | PutRange
    | GetRange
    | Calculate
    | RoundRange
    | PublishRange
    | TakeAnswer
    | ListVectors
    | SaveGeneration
    | KeepGeneration
    | LoadGeneration
)
Response = Answer | Refused


def send_frame(connection: socket.socket, record: msgspec.Struct) -> int:
    """Send one record; return how many bytes that took.

    Raises:
        TrustError: ``STO-T038`` when it is too large; nothing was sent.
        OSError: the other side is gone.
    """
    body = encode(record)
    return frames.send_frame(connection, body, most=MOST_BYTES, code=_BAD, header=8)


def receive_request(connection: socket.socket) -> Request | None:
    """Return the next request, None when the caller has closed; raises ``STO-T038``."""
    return cast("Request | None", receive(connection, Request))


def receive_response(connection: socket.socket) -> Response | None:
    """Return the next answer, None when the process is gone; raises ``STO-T038``."""
    return cast("Response | None", receive(connection, Response))


def receive(connection: socket.socket, kind: object, most: int = MOST_BYTES) -> object:
    """Return the next record, of `most` bytes; None at the end; raises ``STO-T038``."""
    body = frames.receive_frame(connection, most=most, code=_BAD, header=8)
    try:
        return None if body is None else decode(body, cast("type[object]", kind))
    except StoiloError as error:
        raise TrustError(_BAD, f"between server and shard: {error.message}") from None
