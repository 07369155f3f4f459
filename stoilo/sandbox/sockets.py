"""Unix sockets that carry descriptors, for the processes whose start counts.

The library's `socket` wraps the interpreter's own `_socket` and loads selectors and enums
with it: 3 ms of every cold start, for nothing that a zygote uses. Its sockets are of a
subclass, so the supervisor's fit here too.
"""

from __future__ import annotations

import array
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

__all__ = [
    "adopt",
    "pair",
    "receive_with_descriptors",
    "send_with_descriptors",
    "socket",
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
