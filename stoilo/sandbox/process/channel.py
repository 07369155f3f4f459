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
    socket,
    socketpair,
)
from typing import TypeVar

import msgspec

from stoilo.core.levels import Level
from stoilo.sandbox.kernel.seccomp import FD

__all__ = [
    "FRAME_HEADER",
    "OUT_OF_MEMORY",
    "PROBE_JOB",
    "PROGRESS_FLAG",
    "TASK_JOB",
    "VALIDATE_JOB",
    "Ended",
    "Hello",
    "Output",
    "Programs",
    "Ready",
    "StartRun",
    "Started",
    "adopt",
    "pair",
    "receive",
    "receive_lifeline",
    "receive_with_descriptors",
    "send",
    "send_with_descriptors",
    "socket",
    "write_progress",
]


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
    """Return one packet of at most `most` bytes and its descriptors, closed on exec.

    Raises:
        OSError: the channel broke.
    """
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
    """The BPF programs of one level.

    Attributes:
        single: for runs with one thread.
        threaded: for runs with more.
        zygote: for the zygote itself; every run inherits it.
        waiter: for the process that waits for the init of the pid namespace.
    """

    single: bytes = b""
    threaded: bytes = b""
    zygote: bytes = b""
    waiter: bytes = b""


class Hello(msgspec.Struct, frozen=True):
    """Supervisor → zygote, once: what to prepare.

    Attributes:
        level: the level in force.
        job: dotted name of the job module.
        preload: modules to import besides the level's.
        programs: the filters.
        supervisor: pid of the sender, whose death ends the zygote.
        niceness: how far the processor is left to others, as nice(2) has it.
    """

    level: Level
    job: str
    preload: tuple[str, ...]
    programs: Programs
    supervisor: int
    niceness: int = 0


class Ready(msgspec.Struct, frozen=True):
    """Zygote → supervisor, once: what it could set up.

    Attributes:
        layers: mechanisms that every child will have.
        missing: mandatory mechanisms that this host lacks; then no run is possible.
        error: why preparing failed, empty when it did not.
        failed_import: the module that could not be imported, empty if none.
    """

    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""
    failed_import: str = ""


class StartRun(msgspec.Struct, frozen=True):
    """Supervisor → zygote: fork a child; descriptors request, output, result, lifeline."""

    request_bytes: int
    cpu_s: int
    memory_bytes: int
    threads: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Zygote → supervisor on the run's lifeline: the child exists; its pidfd beside."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Zygote → supervisor on the run's lifeline: how the child ended.

    Attributes:
        wait_status: as wait4(2) gave it.
        cpu_s: user and system time, s.
        peak_bytes: largest resident set.
        denied: whether the filter stopped a call; every number may be one, -1 too.
        syscall: number of the denied call.
        refused: the mechanism that could not be applied, empty if all were.
    """

    wait_status: int
    cpu_s: float
    peak_bytes: int
    denied: bool = False
    syscall: int = 0
    refused: str = ""


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
    """Return the next message about a run, None when the zygote has gone; descriptors.

    Raises:
        OSError: the lifeline broke.
        msgspec.MsgspecError: no message of a zygote.
    """
    data, descriptors = receive_with_descriptors(lifeline, _LIFELINE_BYTES, 1)
    if not data:
        return None, descriptors
    message: Started | Ended = msgspec.msgpack.decode(data, type=_LIFELINE_MESSAGE)
    return message, descriptors


def receive(channel: socket, kind: type[_M]) -> tuple[_M, list[int]] | None:
    """Return the next message and its descriptors, None at the end of the channel.

    Raises:
        OSError: the channel broke.
        msgspec.MsgspecError: not a message of `kind`.
    """
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
