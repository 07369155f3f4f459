"""What supervisor, zygote and child say to each other, and over which descriptors.

Supervisor and zygote exchange one message a packet over SOCK_SEQPACKET unix sockets, as
msgpack of the structs below, with descriptors beside (SCM_RIGHTS). Both are ours, yet the
receiver checks types. The jailed child says only bytes: output, and one length-prefixed
frame; both are untrusted. Where the supervisor asked for them, frames that tell how far the
run is come before the last one on the same pipe.
"""

from __future__ import annotations

import array
import os
from _socket import (
    AF_UNIX,
    CMSG_SPACE,
    MSG_CMSG_CLOEXEC,
    MSG_NOSIGNAL,
    SCM_RIGHTS,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socketpair,
)
from _socket import socket as socket  # noqa: PLC0414 - zygote and child name it from here
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.core.types import BOUNDS
from stoilo.sandbox.kernel.calls import FD

# Unix sockets that carry descriptors, for the processes whose start counts ------------
#
# The library's `socket` wraps the interpreter's own `_socket` and loads selectors and enums
# with it: 3 ms of every cold start, for nothing that a zygote uses. Its sockets are of a
# subclass, so the supervisor's fit here too.


_INT_BYTES = array.array("i").itemsize


def adopt(descriptor: int) -> socket:
    """Return the socket that `descriptor` is; the socket owns it from now on."""
    return socket(fileno=descriptor)


def pair() -> tuple[socket, socket]:
    """Return two connected sockets that keep packets apart and in order."""
    return socketpair(AF_UNIX, SOCK_SEQPACKET)


def send_with_descriptors(
    channel: socket, data: bytes, descriptors: tuple[int, ...] = ()
) -> None:
    """Send one packet with `descriptors`; raises OSError when the other side is gone."""
    rights = (SOL_SOCKET, SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([data], [rights] if descriptors else [], MSG_NOSIGNAL)


def receive_with_descriptors(
    channel: socket, most: int, descriptors: int
) -> tuple[bytes, list[int]]:
    """Return one packet of at most `most` bytes and its descriptors, closed on exec."""
    data, ancillary, _, _ = channel.recvmsg(
        most, CMSG_SPACE(descriptors * _INT_BYTES), MSG_CMSG_CLOEXEC
    )
    received = array.array("i")
    for level, kind, rights in ancillary:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            received.frombytes(rights[: len(rights) - len(rights) % _INT_BYTES])
    return data, list(received)


TASK_JOB = "stoilo.sandbox.process.task_job"
VALIDATE_JOB = "stoilo.sandbox.process.validate_job"
PROBE_JOB = "stoilo.sandbox.process.probe_job"
"""The one job without a language layer, and the one that may run in errno mode."""

FRAME_HEADER = 8
"""Bytes before the frame: its length, big-endian."""
PROGRESS_FLAG = 1 << 63
"""In a frame's length: it tells of progress, and another frame follows."""
OUT_OF_MEMORY = (1 << 62).to_bytes(FRAME_HEADER, "big")
"""Instead of a frame: our own code had no memory left to make one.

An exit status would not do: it is any program's to choose. These bytes too may be a lie of
a process that native code took over, which could as well take the memory.
"""
EXIT_JOB_FAILED, EXIT_SETUP = 70, 72
_HELLO_BYTES, _MESSAGE_BYTES = 1 << 20, 1 << 16
_LIFELINE_BYTES = 4096
_DESCRIPTORS = 8


class Programs(msgspec.Struct, frozen=True):
    """The BPF programs of one level."""

    single: bytes = b""  # for runs with one thread
    threaded: bytes = b""  # for runs with more
    zygote: bytes = b""  # for the zygote itself; every run inherits it
    waiter: bytes = b""  # for the process that waits for the init of the pid namespace


class Hello(msgspec.Struct, frozen=True):
    """Supervisor → zygote, once: what to prepare."""

    level: Level  # the level in force
    job: str  # dotted name of the job module
    preload: tuple[str, ...]  # modules to import besides the level's
    programs: Programs  # the filters
    supervisor: int  # pid of the sender, whose death ends the zygote
    niceness: int = 0  # how far the processor is left to others, as nice(2) has it


class Ready(msgspec.Struct, frozen=True):
    """Zygote → supervisor, once: what it could set up."""

    layers: tuple[str, ...] = ()  # mechanisms that every child will have
    # Mandatory mechanisms that this host lacks; then no run is possible
    missing: tuple[str, ...] = ()
    error: str = ""  # why preparing failed, empty when it did not
    failed_import: str = ""  # the module that could not be imported, empty if none


class StartRun(msgspec.Struct, frozen=True):
    """Supervisor → zygote: fork a child; descriptors request, output, result, lifeline."""

    request_bytes: int
    cpu_s: int
    memory_bytes: int
    threads: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Zygote → supervisor on the run's lifeline: the child exists; its pidfd beside."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Zygote → supervisor on the run's lifeline: how the child ended."""

    wait_status: int  # as wait4(2) gave it
    cpu_s: float  # user and system time, s
    peak_bytes: int  # largest resident set
    # Whether the filter stopped a call; every number may be one, -1 too
    denied: bool = False
    syscall: int = 0  # number of the denied call
    refused: str = ""  # the mechanism that could not be applied, empty if all were


_M = TypeVar("_M", bound=msgspec.Struct)
_LIFELINE_MESSAGE = Started | Ended


def send(
    channel: socket, message: msgspec.Struct, descriptors: tuple[int, ...] = ()
) -> None:
    """Send one message with descriptors; raises OSError when the other side is gone."""
    data = msgspec.msgpack.encode(message)
    send_with_descriptors(channel, data, descriptors)


def receive_lifeline(
    lifeline: socket,
) -> tuple[Started | Ended | None, list[int]]:
    """Return the next message about a run, None when the zygote has gone; descriptors."""
    data, descriptors = receive_with_descriptors(lifeline, _LIFELINE_BYTES, 1)
    if not data:
        return None, descriptors
    message: Started | Ended = msgspec.msgpack.decode(data, type=_LIFELINE_MESSAGE)
    return message, descriptors


def receive(channel: socket, kind: type[_M]) -> tuple[_M, list[int]] | None:
    """Return the next message and its descriptors, None at the end of the channel."""
    most = _HELLO_BYTES if issubclass(kind, Hello) else _MESSAGE_BYTES
    data, descriptors = receive_with_descriptors(channel, most, _DESCRIPTORS)
    if not data:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return msgspec.msgpack.decode(data, type=kind), descriptors


def write_progress(frame: bytes) -> None:
    """Write a frame of progress where the result will go; in the jailed child only."""
    data = memoryview(
        (PROGRESS_FLAG | len(frame)).to_bytes(FRAME_HEADER, "big") + frame
    )
    while data:
        data = data[os.write(FD.RESULT, data) :]


class Output:
    """Where a job prints: unbuffered, so that what was printed survives a kill.

    The supervisor counts the bytes and kills at the limit.
    """

    def __init__(self, descriptor: int = FD.OUTPUT) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        """Write all of `text` as UTF-8; returns its length in characters."""
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(self._descriptor, data) :]
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


STATE_FRACTION = 4
"""A state may take this part of the result's limit: one over it."""
MOST_STEPS = 1 << 53
_MOST_TELL_MS = 3_600_000
UNREADABLE_STATE = "STO-G122"
"""What a run ends with that cannot read the state it should go on from."""
_HEADER_BYTES = 256  # around a state in its frame


class FrameTooLargeError(Exception):
    """A frame of progress is larger than the run may send."""


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run tells of itself."""

    # How many states were yielded, or items are done
    step: Annotated[int, msgspec.Meta(ge=0, le=MOST_STEPS)]
    # 0 to 1, None where the task does not say
    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    state: bytes | None = None  # encoded value to go on from; None: there is none


class TaskRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `stoilo.sandbox.process.task_job` is asked to do; all of it untrusted."""

    source: str  # text of the task module
    entry: str  # function to call, empty for the last ``def`` of the module body
    arguments: bytes  # encoded dict that the function gets
    blobs: tuple[bytes, ...] = ()  # encoded values that the arguments refer to
    # Hex digits; the seed of every generator (I7)
    seed: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{2}){0,64}\Z")] = "00" * 32
    now: int = 0  # what the clock says, s since 1970 in UTC
    # How many calls share the run, 0 for a single one
    items: Annotated[int, msgspec.Meta(ge=0, le=BOUNDS.map_items)] = 0
    # How often at most the run tells of its progress, -1: never
    tell_ms: Annotated[int, msgspec.Meta(ge=-1, le=_MOST_TELL_MS)] = -1
    # The largest state that is told, bytes
    most_state: Annotated[int, msgspec.Meta(ge=0, le=BOUNDS.value_bytes)] = (
        BOUNDS.value_bytes
    )
    # After how many yielded states it goes on
    step: Annotated[int, msgspec.Meta(ge=0, le=MOST_STEPS)] = 0
    # The last of them, encoded (`Progress.state`); empty: from the beginning
    state: bytes = b""

    def encode(self) -> bytes:
        """Return the request as an encoded skeleton."""
        return skeleton.encode(msgspec.structs.asdict(self) | {"blobs": [*self.blobs]})


def largest_state(result_bytes: int) -> int:
    """Return the largest encoded state, bytes, of a run with this result limit."""
    return result_bytes // STATE_FRACTION


def render_progress(progress: Progress) -> bytes:
    """Return the frame."""
    return skeleton.encode(msgspec.structs.asdict(progress))


def parse_progress(frame: bytes) -> Progress | None:
    """Return what a frame (hostile) tells, None when it is none."""
    try:
        return msgspec.convert(skeleton.decode(frame), Progress, builtin_types=(bytes,))
    except (TrustError, msgspec.ValidationError):
        return None


def take_progress(buffer: bytearray, result_bytes: int | None) -> bytes | None:
    """Take the next whole frame of progress out of what a result pipe gave.

    Args:
        buffer: what was read (hostile) and not yet taken; loses the frame.
        result_bytes: limit of the result; None where no progress was asked for.

    Returns:
        The frame; None when the next frame is not all there, or is the result.

    Raises:
        FrameTooLargeError: it announces more than the run may send.
    """
    header = int.from_bytes(buffer[:FRAME_HEADER], "big")
    if len(buffer) < FRAME_HEADER or not header & PROGRESS_FLAG:
        return None
    size = header ^ PROGRESS_FLAG
    if result_bytes is None or size > largest_state(result_bytes) + _HEADER_BYTES:
        raise FrameTooLargeError
    end = FRAME_HEADER + size
    if len(buffer) < end:
        return None
    frame = bytes(buffer[FRAME_HEADER:end])
    del buffer[:end]
    return frame


class Teller:
    """Writes frames of progress from inside the jail, no more often than asked for.

    What it leaves out changes no answer: whether a frame leaves depends on the clock, what
    the run computes does not.

    Args:
        write: takes one frame.
        gap_s: least time between two, s.
        most_state: larger states are told of without them, bytes.
        clock: s.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        gap_s: float,
        most_state: int,
        clock: Callable[[], float],
    ) -> None:
        self._write = write
        self._gap_s = gap_s
        self._most_state = most_state
        self._clock = clock
        self._next = clock()

    def tell(self, progress: Progress) -> None:
        """Write the frame if it is time for one."""
        now = self._clock()
        if progress.state is not None and len(progress.state) > self._most_state:
            progress = msgspec.structs.replace(progress, state=None)
        if now >= self._next:
            self._next = now + self._gap_s
            self._write(render_progress(progress))
