"""Frames on a stream socket: a length, then so many bytes, never more than agreed.

Big-endian lengths of four or eight bytes. What comes is hostile: the length is checked
before a byte of the body is read, and a stream that ends within a frame is an error.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from stoilo.core.errors import TrustError

_PIECE = 1 << 20  # a body is asked for in pieces: a claimed length reserves no memory


class CutError(TrustError):
    """The stream ended within a frame: whoever sent it may be gone, not hostile."""


def send_frame(
    connection: socket.socket, body: bytes, *, most: int, code: str, header: int = 4
) -> int:
    """Send one frame; return how many bytes went out.

    Args:
        connection: a connected stream.
        body: what the other side shall get.
        most: bytes that a body may have, as the other side allows.
        code: of the error.
        header: bytes of the length, 4 or 8.

    Raises:
        TrustError: `code`, for a body above `most`.
        OSError: the stream's own.
    """
    if len(body) > most:
        raise TrustError(code, f"a message of {len(body)} bytes is above {most}")
    connection.sendall(len(body).to_bytes(header, "big") + body)
    return header + len(body)


def receive_frame(
    # a connected stream; its timeout is changed when there is a deadline
    connection: socket.socket,
    *,
    most: int,  # bytes that a body may have
    code: str,  # of the error
    header: int = 4,  # bytes of the length, 4 or 8
    # when the whole frame must be there, on `clock`; None: the socket's own timeout
    # holds for each read
    deadline: float | None = None,
    clock: Callable[[], float] = time.monotonic,  # s, monotonic
) -> bytes | None:
    """Return the next frame's body, None when the stream ended before one.

    Raises:
        TrustError: `code`, for a body above `most`; a `CutError` for a stream that ends
            within a frame.
        TimeoutError: the deadline passed, however often a byte came.
        OSError: the stream's own.
    """
    head = _receive(connection, header, deadline, clock)
    if not head:
        return None
    length = int.from_bytes(head, "big")
    if len(head) < header or length > most:
        raise TrustError(code, f"no frame of at most {most} bytes came")
    body = _receive(connection, length, deadline, clock)
    if len(body) < length:
        raise CutError(code, "the stream ended within a message")
    return body


def _receive(
    connection: socket.socket,
    size: int,
    deadline: float | None,
    clock: Callable[[], float],
) -> bytes:
    """Return `size` bytes, fewer when the stream ends."""
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - clock()
            if left <= 0:
                raise TimeoutError("the message comes too slowly")
            connection.settimeout(left)
        piece = connection.recv(min(size - len(data), _PIECE))
        if not piece:
            break
        data += piece
    return bytes(data)
