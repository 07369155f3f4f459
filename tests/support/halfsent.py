"""HTTP/2 as an attacker speaks it: many streams of one connection, each message half sent.

It obeys flow control, so what it gets rid of is what the server lets in. No library: gRPC's
own client would never stop in the middle of a message.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Final, Self

__all__ = ["HalfSender"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MOST_STREAMS, FIRST_WINDOW = 3, 4
FRAME_BYTES: Final = 16_384
HEAD_BYTES: Final = 9


class HalfSender:
    """One connection with streams that begin a message and never end it.

    Args:
        address: ``host:port``.
        ca: PEM of the server's certificate authority, empty for no TLS.
        token: of the caller, empty for none.

    Attributes:
        sent: bytes of messages that the server has let in, by stream.
        ended: streams that the server has ended.
        gone: whether the server has closed the connection.
    """

    def __init__(self, address: str, ca: str = "", token: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._socket: socket.socket = socket.create_connection((host, int(port)), 10.0)
        if ca:
            context = ssl.create_default_context(cadata=ca)
            context.check_hostname = False
            context.set_alpn_protocols(["h2"])
            self._socket = context.wrap_socket(self._socket)
        self._token = token
        self._buffer = b""
        self._first_window = self._room = 65_535
        self._rooms: dict[int, int] = {}
        self.most_streams = 2**31
        self.sent: dict[int, int] = {}
        self.ended: set[int] = set()
        self.gone = False
        self._send(PREFACE + _frame(SETTINGS, 0, 0, b""))
        self.listen(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    @property
    def total(self) -> int:
        """Bytes of messages that the server has let in."""
        return sum(self.sent.values())

    def begin(self, method: str, streams: int) -> None:
        """Open so many streams, at most as many as the server allows."""
        pairs = [
            *((":method", "POST"), (":scheme", "https"), (":path", method)),
            *((":authority", "localhost"), ("content-type", "application/grpc")),
            ("te", "trailers"),
        ]
        if self._token:
            pairs.append(("authorization", f"Bearer {self._token}"))
        head = b"".join(_literal(*pair) for pair in pairs)
        first = 2 * len(self.sent) + 1
        for number in range(min(streams, self.most_streams)):
            stream = first + 2 * number
            self._rooms[stream], self.sent[stream] = self._first_window, 0
            self._send(_frame(HEADERS, END_HEADERS, stream, head))

    def push(self, message_bytes: int) -> int:
        """Send of each message all but its last byte, as far as there is room now.

        Returns how many bytes went out.
        """
        before = self.total
        for stream in self._rooms:
            while not self.gone and self._push_one(stream, message_bytes):
                pass
        self.listen(0.02)
        return self.total - before

    def push_until_stuck(self, message_bytes: int, patience: int = 25) -> int:
        """Push until nothing has gone out for some rounds of 0.02 s; returns all bytes."""
        idle = 0
        while idle < patience and not self.gone:
            idle = 0 if self.push(message_bytes) else idle + 1
        return self.total

    def _push_one(self, stream: int, message_bytes: int) -> bool:
        done = self.sent[stream]
        room = min(self._rooms[stream], self._room, FRAME_BYTES)
        size = min(room, message_bytes + 4 - done)
        if size <= 0 or stream in self.ended:
            return False
        head = b"\0" + struct.pack(">I", message_bytes) if not done else b""
        self._send(_frame(DATA, 0, stream, (head + b"#" * size)[:size]))
        self.sent[stream] += size
        self._rooms[stream] -= size
        self._room -= size
        return True

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(10.0)
        try:
            self._socket.sendall(data)
        except OSError:
            self.gone = True

    def listen(self, seconds: float) -> None:
        """Take what the server says until it is silent for so long."""
        while not self.gone:
            self._socket.settimeout(seconds)
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                return
            except OSError:
                data = b""
            self.gone = not data
            self._buffer += data
            self._read_frames()

    def _read_frames(self) -> None:
        while len(self._buffer) >= HEAD_BYTES:
            size = int.from_bytes(self._buffer[:3], "big") + HEAD_BYTES
            if len(self._buffer) < size:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:HEAD_BYTES], "big") & 0x7FFF_FFFF
            body, self._buffer = self._buffer[HEAD_BYTES:size], self._buffer[size:]
            self._obey(kind, flags, stream, body)

    def _obey(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == WINDOW:
            more = int.from_bytes(body, "big")
            if stream:
                self._rooms[stream] = self._rooms.get(stream, 0) + more
            else:
                self._room += more
        elif kind == SETTINGS and not flags & ACK:
            self._settle(body)
            self._send(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._send(_frame(PING, ACK, 0, body))
        elif kind == RST or (kind == HEADERS and flags & END_STREAM):
            self.ended.add(stream)
        elif kind == GOAWAY:
            self.gone = True

    def _settle(self, body: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", body):
            if name == MOST_STREAMS:
                self.most_streams = value
            elif name == FIRST_WINDOW:
                more, self._first_window = value - self._first_window, value
                for stream in self._rooms:
                    self._rooms[stream] += more


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    head = struct.pack(">I", len(body))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + body


def _literal(name: str, value: str) -> bytes:
    """Return one header without compression."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data, size = text.encode(), len(text)
    if size < 127:
        return bytes([size]) + data
    return bytes([127, *_rest(size - 127)]) + data


def _rest(number: int) -> list[int]:
    return [number] if number < 128 else [number % 128 + 128, *_rest(number // 128)]
