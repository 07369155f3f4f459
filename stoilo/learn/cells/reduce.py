"""All-reduce among processes that talk directly: ring, tree, halving-doubling; numpy alone.

A schedule says, step by step, which chunks a rank gives to whom and what it takes from whom.
Each chunk's sum grows along one way to one rank and goes back by the same way: a sum is formed
once, in an order that hangs on the chunk alone, and all ranks hold the same bits. Source:
Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
(2005); Goyal et al., "Accurate, Large Minibatch SGD" (2017).
"""

from __future__ import annotations

import hmac
import select
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, cast

import numpy as np

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.core.frames import receive_frame, send_frame
from stoilo.core.listen import Address
from stoilo.learn.core.tensors import Array

Chunks = tuple[int, int]  # the first, and the one after the last
_NONE: Chunks = (0, 0)
_LOST, _NONE_SUCH = "STO-T037", "STO-T038"
_RANK = 4  # bytes of a rank in a greeting
_GREETING_S = 5.0  # that a caller has to say who he is
_PAUSE_S = 0.05  # before a rank that does not listen yet is called again


@dataclass(frozen=True, slots=True)
class Step:
    """What one rank does at once: it gives some chunks away while others come."""

    to: int | None = None  # who gets `give`
    give: Chunks = _NONE
    source: int | None = None  # whose `take` comes
    take: Chunks = _NONE
    adds: bool = True  # what comes is added to what is here, else put in its place

    def turn(self) -> Step:
        """Return the same way backwards: sums go where parts came from."""
        return Step(self.source, self.take, self.to, self.give, adds=False)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All steps of one rank."""

    chunks: int  # into which a vector is cut
    steps: tuple[Step, ...]

    def cut(self, length: int) -> list[int]:
        """Return where the chunks of so many numbers begin, and their end."""
        return [length * chunk // self.chunks for chunk in range(self.chunks + 1)]

    def sent(self, length: int) -> int:
        """Return how many numbers of so many the rank sends."""
        cuts = self.cut(length)
        return sum(cuts[step.give[1]] - cuts[step.give[0]] for step in self.steps)


def _there_and_back(chunks: int, there: Sequence[Step]) -> Schedule:
    return Schedule(chunks, (*there, *[step.turn() for step in reversed(there)]))


def ring(rank: int, size: int) -> Schedule:
    """Return 2(p-1) steps to the neighbours: each rank sends 2(p-1)/p of the vector."""

    def one(chunk: int) -> Chunks:
        return chunk % size, chunk % size + 1

    after, before = (rank + 1) % size, (rank - 1) % size
    there = [
        Step(after, one(rank - step), before, one(rank - step - 1))
        for step in range(size - 1)
    ]
    return _there_and_back(size, there)


def tree(rank: int, size: int) -> Schedule:
    """Return at most 2·log2 p steps with the whole vector: for what is short."""
    whole, there, bit = (0, 1), [], 1
    while bit < size and not rank & bit:
        if rank + bit < size:
            there.append(Step(source=rank + bit, take=whole))
        bit *= 2
    if rank:
        there.append(Step(to=rank - bit, give=whole))
    return _there_and_back(1, there)


def halving(rank: int, size: int) -> Schedule:
    """Return 2·log2 p steps that send 2(p-1)/p of the vector, for p a power of two.

    Of other sizes the ranks above the power first fold their whole vector into one below
    it, and get the sum at the end: they send n, those below 2(q-1)/q·n, and n more where
    one was folded in (q: the power).
    """
    power = 1 << size.bit_length() - 1
    whole: Chunks = (0, power)
    if rank >= power:
        return _there_and_back(power, [Step(to=rank - power, give=whole)])
    folded = rank + power < size
    there = [Step(source=rank + power, take=whole)] if folded else []
    (first, end), half = whole, power // 2
    while half:
        low, high = (first, first + half), (first + half, end)
        kept, given = (high, low) if rank & half else (low, high)
        there.append(Step(rank ^ half, given, rank ^ half, kept))
        (first, end), half = kept, half // 2
    return _there_and_back(power, there)


SCHEDULES: Mapping[str, Callable[[int, int], Schedule]] = {
    "ring": ring,
    "tree": tree,
    "halving": halving,
}


class Link(Protocol):
    """How one rank reaches the others."""

    def exchange(
        self, to: int | None, given: Array, source: int | None, into: Array
    ) -> None:
        """Send `given` while `into` is filled, one-dimensional bytes; return after both."""


def all_reduce(array: Array, schedule: Schedule, link: Link) -> None:
    """Put the sum of all ranks' arrays in place of each one's own.

    Args:
        array: contiguous, of the same form and type at every rank.
        schedule: this rank's; the others have the same kind.
        link: to the others.

    Raises:
        ValueError: the array is not contiguous.
        StoiloError: the link's.
    """
    flat = array.reshape(-1, copy=False)
    cuts = schedule.cut(len(flat))
    spans = [(cuts[step.take[0]], cuts[step.take[1]]) for step in schedule.steps]
    came = np.empty(max((end - first for first, end in spans), default=0), flat.dtype)
    for step, (first, end) in zip(schedule.steps, spans, strict=True):
        given, taken = flat[cuts[step.give[0]] : cuts[step.give[1]]], flat[first:end]
        into = came[: len(taken)] if step.adds else taken
        link.exchange(step.to, given.view(np.uint8), step.source, into.view(np.uint8))
        if step.adds:
            taken += into


@dataclass(frozen=True, slots=True)
class SocketLink:
    """Streams to all other ranks, of a private network: nothing is encrypted.

    Use it in a ``with``: its end, an error's too, hangs up on all, and so theirs end.
    """

    rank: int
    streams: Mapping[int, socket.socket]  # by rank
    limit_s: float  # that one exchange may take, s

    def exchange(
        self, to: int | None, given: Array, source: int | None, into: Array
    ) -> None:
        """Send and receive at the same time, each with its length in front.

        Raises:
            UnreachableError: ``STO-T037``, a peer is gone, or the limit is over.
            TrustError: ``STO-T038``, the source sends another number of bytes than `into` has.
        """
        until = time.monotonic() + self.limit_s
        size = b"" if to is None else len(given).to_bytes(8, "big")
        told = bytearray(0 if source is None else 8)
        self._move(to, memoryview(size), source, memoryview(told), until)
        if source is not None and (comes := int.from_bytes(told, "big")) != len(into):
            raise TrustError(
                _NONE_SUCH, f"rank {source} sends {comes} bytes, not {len(into)}"
            )
        self._move(to, given.data, source, into.data, until)

    def _move(
        self,
        to: int | None,
        given: memoryview,
        source: int | None,
        into: memoryview,
        until: float,
    ) -> None:
        while given or into:
            sends = self._wait(to if given else None, source if into else None, until)
            rank = cast("int", to if sends else source)
            try:
                if sends:
                    given = given[self.streams[rank].send(given) :]
                elif count := self.streams[rank].recv_into(into):
                    into = into[count:]
                else:
                    raise ConnectionResetError
            except OSError as error:
                raise UnreachableError(_LOST, f"rank {rank} is gone") from error

    def _wait(self, to: int | None, source: int | None, until: float) -> bool:
        """Say whether to send now: what has come is taken first."""
        wanted: dict[int, int] = {}
        for rank, event in ((source, select.POLLIN), (to, select.POLLOUT)):
            if rank is not None:
                number = self.streams[rank].fileno()
                wanted[number] = wanted.get(number, 0) | event
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        found = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
        if not found:
            slow = [rank for rank in (source, to) if rank is not None]
            raise UnreachableError(
                _LOST, f"no bytes passed between ranks {self.rank} and {slow} in time"
            )
        if source is None:
            return True
        return not found.get(self.streams[source].fileno(), 0) & ~select.POLLOUT

    def __enter__(self) -> Self:
        """Return the link."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up on all."""
        for stream in self.streams.values():
            stream.close()


def join(
    rank: int,
    peers: Sequence[Address],
    listener: socket.socket,
    token: bytes,
    limit_s: float,
) -> SocketLink:
    """Return this rank's streams to all others, each of which calls this too.

    Args:
        rank: this one's place among `peers`.
        peers: where each rank listens, the same at all of them.
        listener: bound to this rank's address; it stays open.
        token: what strangers do not know; it crosses the network as it is.
        limit_s: how long all may take to come, and later each exchange, s.

    Raises:
        UnreachableError: ``STO-T037``, not all came in time.
    """
    until = time.monotonic() + limit_s
    listener.listen(len(peers))
    link = SocketLink(rank, streams := {}, limit_s)
    try:
        for other in range(rank):
            streams[other] = _call(peers[other], until)
            hello = rank.to_bytes(_RANK) + token
            send_frame(streams[other], hello, most=len(hello), code=_NONE_SUCH)
        while missing := set(range(len(peers))) - {rank, *streams}:
            _greet(listener, missing, token, streams, until)
    except BaseException as error:
        link.__exit__()
        if isinstance(error, OSError):
            raise UnreachableError(_LOST, "not all ranks came in time") from error
        raise
    for stream in streams.values():
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(0)  # `_wait` waits
    return link


def _call(address: Address, until: float) -> socket.socket:
    """Connect to a rank, again and again while it may not listen yet."""
    while True:
        left = max(until - time.monotonic(), 0.001)
        try:
            return socket.create_connection((address.host, address.port), left)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)


def _greet(
    listener: socket.socket,
    missing: Collection[int],
    token: bytes,
    streams: dict[int, socket.socket],
    until: float,
) -> None:
    """Take in who calls; who is none of the missing ranks is hung up on."""
    listener.settimeout(max(until - time.monotonic(), 0.001))
    stream, _ = listener.accept()
    soon = min(until, time.monotonic() + _GREETING_S)
    try:
        hello = receive_frame(
            stream, most=_RANK + len(token), code=_NONE_SUCH, deadline=soon
        )
    except (OSError, StoiloError):
        hello = None
    caller = int.from_bytes((hello or b"")[:_RANK])
    if (
        hello is not None
        and hmac.compare_digest(hello[_RANK:], token)
        and caller in missing
    ):
        streams[caller] = stream
    else:
        stream.close()
