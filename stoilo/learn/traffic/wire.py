"""What nodes, their coordinator and their owners say to each other, and how bytes travel.

Streams are those of shards (`stoilo.learn.store.network`): TLS, a token first, then frames of
at most `MOST_BYTES`. A node keeps two to its coordinator: on one it reports and each report is
answered, on the other it only hears orders. Bytes of models never stand in a frame: they follow
one that says how many there are, in pieces, and are hashed on the way into their file.

Who fetches opens the stream: TLS then says whose bytes they are, so wrong ones have a name.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.values import encode
from stoilo.learn.traffic.links import Term

MOST_BYTES = 1 << 20  # of a frame
MOST_ITEM = 64 << 30  # bytes of a model or a sum
MOST_IDS = 4096  # contributions of a round
MOST_KEPT = 1024  # versions of a node: each is a line of its first word
MOST_NETWORKS = 256  # of volunteers, in a report
MOST_TEXT = 200  # characters of a URL or a network
PIECE = 256 << 10  # bytes
SEGMENTS = 8  # of a sum's vector, at most: each travels and is added up by itself
LEAST_SEGMENT = 256 << 10  # bytes; shorter ones would be all handshake
WORD_BYTES = 8  # of a sum's numbers: int64, of whatever the vectors were
STALL_S = 5.0  # in which a piece comes or goes, or its stream is given up
BEAT_S = 1.0  # how often a node and its coordinator say that they live
SILENCE_S = 5.0  # after which the other one counts as gone
OWNER_S = 3600.0  # most that an owner's upload, or his waiting, may take
DONE = p.Answer(encode(None))


class Item(msgspec.Struct, frozen=True):
    """Bytes that a node holds: a model's version, or of some contributions' sum a segment."""

    number: int  # the version's, or the round's
    digest: str  # SHA-256 of the bytes
    size: int  # bytes
    ids: tuple[
        str, ...
    ] = ()  # whose contributions a sum holds, sorted; none: a version
    segment: int = 0  # of the sum's vector
    of: int = 1  # so many
    training: str = ""  # whose version it is; none: a file that a project's tasks share

    def __post_init__(self) -> None:
        """Refuse what no honest node says."""
        fair = 0 <= self.size <= MOST_ITEM and len(self.ids) <= MOST_IDS
        fair &= 0 <= self.segment < self.of <= (SEGMENTS if self.ids else 1)
        fair &= len(self.training) <= MOST_TEXT
        if not fair or list(self.ids) != sorted(set(self.ids)):
            raise TrustError("STO-T038", "no such bytes can be held")

    @property
    def place(self) -> tuple[int, int]:
        """Of which round it is, and of which segment."""
        return self.number, self.segment

    @property
    def key(self) -> str:
        """The name of its file."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def cut(
    number: int,
    data: bytes,
    ids: tuple[str, ...],
    least: int = LEAST_SEGMENT,
    training: str = "",
) -> list[tuple[Item, memoryview]]:
    """Return a contribution in segments of whole words, and what each is.

    Vectors of the same length are cut in the same way; a version (no `ids`) stays whole.
    """
    count = max(1, min(SEGMENTS, len(data) // least)) if ids else 1
    step = -(-len(data) // (count * WORD_BYTES)) * WORD_BYTES if ids else len(data)
    view = memoryview(data)
    pieces = [view[at : at + step] for at in range(0, len(data), step or 1)] or [view]
    of = len(pieces)
    return [
        (Item(number, content_digest(one), len(one), ids, index, of, training), one)
        for index, one in enumerate(pieces)
    ]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A node's first word: everything that a coordinator has to know of it."""

    place: ShardPlace  # where other nodes fetch from it
    term: Term  # the latest that it has heard
    is_led: bool  # whether who said so still leads it
    items: list[Item]
    rounds: dict[int, list[str]]  # that its owner collects: the ids he waits for
    # with final slash: where volunteers get versions by digest; none: not here
    url: str = ""


class Listen(msgspec.Struct, frozen=True, tag="listen"):
    """The second stream of a node: orders go out on it."""


class Has(msgspec.Struct, frozen=True, tag="has"):
    """The node holds an item: it was fetched, added up, or given by its owner."""

    item: Item
    transfer: str = ""  # the order that this was; none: the owner's, or held before
    seconds: float = 0.0  # from the first to the last byte, wall clock; 0: none came


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """The node has given all bytes of a transfer, and the other side said so."""

    transfer: str
    seconds: float


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A transfer came to nothing."""

    transfer: str
    why: str
    # stalled: nothing came for a while; bytes: others than the digest's; refused: the part
    # has something in common with what is held; else the other side was not there
    fault: Literal["", "bytes", "stalled", "refused"]


class Forgot(msgspec.Struct, frozen=True, tag="forgot"):
    """The node has no room for a version, or none any more."""

    item: Item


class Reached(msgspec.Struct, frozen=True, tag="reached"):
    """How fast versions went to volunteers of late; of each network the last time."""

    downloads: dict[str, tuple[int, float]]  # network → bytes, s

    def __post_init__(self) -> None:
        """Refuse what no honest node says."""
        sizes = [size for size, _ in self.downloads.values()]
        fair = all(0 <= size <= MOST_ITEM for size in sizes)
        fair &= max(map(len, self.downloads), default=0) <= MOST_TEXT
        if not fair or len(sizes) > MOST_NETWORKS:
            raise TrustError("STO-T038", "no such downloads can have been")


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The node's owner collects a round here; `ids` empty: he has all of it."""

    number: int
    ids: list[str]


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The node lives; `term`: of the coordinator that it obeys."""

    term: Term


class Get(msgspec.Struct, frozen=True, tag="get"):
    """Fetch an item from another node; add a part to the sum that was made here so far."""

    term: Term
    transfer: str
    item: Item
    place: ShardPlace
    lease_s: float  # after which the order is void
    base: Item | None = None  # what to add it to, if to anything, where it is
    afresh: bool = False  # and not to the sum that was made so far


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """A round was collected: its parts are not needed any more."""

    term: Term
    number: int


class Lead(msgspec.Struct, frozen=True, tag="lead"):
    """Said while there is nothing else: a coordinator of this term leads."""

    term: Term


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """Of a node: give the bytes of an item."""

    transfer: str
    item: Item


class Give(msgspec.Struct, frozen=True, tag="give"):
    """Of the owner: hold these bytes, which follow when the node has agreed."""

    item: Item


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Of the owner: give a round's sum, or a version's bytes (no `ids`), once it is there."""

    number: int  # of a training's version: or the newest of a later one
    ids: list[str]
    wait_s: float
    training: str = ""


class Show(msgspec.Struct, frozen=True, tag="show"):
    """Of an operator: tell the newest of the record."""

    events: int = 200


class Locate(msgspec.Struct, frozen=True, tag="locate"):
    """Of a project's server: tell where volunteers get which version."""


class Located(msgspec.Struct, frozen=True, tag="located"):
    """Who has what, and how fast it is for whom."""

    urls: dict[str, str]  # node → where it serves volunteers, with final slash
    holders: dict[str, list[str]]  # a version's digest → nodes, the oldest first
    rates: list[tuple[str, str, float]]  # node, volunteers' network, bytes/s


Report = Has | Sent | Failed | Forgot | Reached | Opened | Beat
Order = Get | Drop | Lead


def receive(stream: socket.socket, kind: Any, most: int = MOST_BYTES) -> Any:  # noqa: ANN401 - of a type or a union, the same
    """Return the next record, raising what `Refused` says; at the end `OSError`.

    Raises:
        TrustError: ``STO-T038``, it is no such record.
        UnreachableError: ``STO-T037``, the other side cannot do it.
    """
    found = p.receive(stream, kind | p.Refused, most)
    if found is None:
        raise ConnectionResetError
    if isinstance(found, p.Refused):
        raise UnreachableError(found.code, found.message)
    return found


def send_bytes(stream: socket.socket, file: BinaryIO) -> None:
    """Send a file's bytes; raises `TimeoutError` for a side that takes no piece in time."""
    buffer = memoryview(bytearray(PIECE))
    stream.settimeout(STALL_S)
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        stream.sendall(buffer[:count])


def receive_pieces(
    stream: socket.socket, item: Item, deadline: float
) -> Iterator[memoryview]:
    """Yield an item's bytes, `PIECE` at a time, each valid until the next one.

    Whoever takes them believes none of them before the last: only then is the digest known.

    Raises:
        TimeoutError: nothing came for `STALL_S`, or not all by the deadline (s, monotonic)
            and so much more.
        ConnectionResetError: the stream ended.
        TrustError: ``STO-L141``, these are other bytes.
    """
    buffer, state = memoryview(bytearray(min(PIECE, item.size))), hashlib.sha256()
    for begin in range(0, item.size, PIECE):
        piece = buffer[: item.size - begin]
        _fill(stream, piece, deadline)
        state.update(piece)
        yield piece
    if state.hexdigest() != item.digest:
        raise TrustError("STO-L141", "bytes came that have another digest")


def _fill(stream: socket.socket, piece: memoryview, deadline: float) -> None:
    got = 0
    stream.settimeout(STALL_S)  # a call to the kernel: once a piece
    while got < len(piece):
        if time.monotonic() > deadline:
            raise TimeoutError("not all bytes came in time")
        count = stream.recv_into(piece[got:])
        if not count:
            raise ConnectionResetError
        got += count
