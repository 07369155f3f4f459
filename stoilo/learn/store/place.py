"""Where a service on the network listens, what opens it, and streams to it that are kept.

`stoilo learn shard` writes the file (0600): address, token and its certificate authority.
Who has it may read and change the shard. A stream is TLS 1.3 to a certificate of that
authority, always; its first frame is the token, and the answer says whether it is the one.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoilo.core import frames
from stoilo.core.errors import DeniedError, TrustError, UsageError
from stoilo.core.listen import parse_address
from stoilo.learn.store import protocol as p

CONNECTION_FILE = "connection.json"
TOKEN_BYTES = 128  # most of a first frame: all that a stranger may send
_MOST_FILE_BYTES = 64 << 10
KEPT_EACH, KEPT_ALL = 2, 32  # streams that wait, to a place and together
KEPT_S = 60.0  # for the next request; who serves them waits longer (`network.IDLE_S`)


class ShardPlace(msgspec.Struct, frozen=True):
    """A shard on the network; a secret, for it holds the token."""

    shard: str  # ``host:port``
    token: str
    ca: str  # PEM of the only authority that its certificate may come from

    def __repr__(self) -> str:
        return f"ShardPlace({self.shard})"

    def connect(self, limit_s: float) -> socket.socket:
        """Return a stream that knows who we are; no read takes longer than `limit_s`.

        Raises:
            DeniedError: ``STO-R001``, another token.
            TrustError: ``STO-T038``, somebody else is there.
            OSError: nobody is.
        """
        address = parse_address(self.shard)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.ca)
        plain = socket.create_connection((address.host, address.port), limit_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:  # on an error it closes `plain` itself
            stream = context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            why = f"{self.shard} is not the shard of the file: {error.verify_message}"
            raise TrustError("STO-T038", why) from None
        try:
            self._introduce(stream)
        except BaseException:
            stream.close()
            raise
        return stream

    def _introduce(self, stream: socket.socket) -> None:
        token = self.token.encode()
        frames.send_frame(stream, token, most=TOKEN_BYTES, code="STO-T038", header=8)
        answer = p.receive_response(stream)
        if answer is None:
            raise ConnectionResetError
        if isinstance(answer, p.Refused):
            raise DeniedError(answer.code, answer.message)


class Streams:
    """Streams to places, kept open from one request to the next; any thread may call.

    One is kept only when all that was asked for has come and been believed. Its token was
    checked at its beginning; another token is another place, with streams of its own.
    """

    def __init__(self) -> None:
        self._lock, self._keep_s = threading.Lock(), KEPT_S
        self._kept: list[tuple[ShardPlace, socket.socket, float]] = []  # newest last

    @contextmanager
    def use(
        self, place: ShardPlace, limit_s: float, ask: Callable[[socket.socket], object]
    ) -> Iterator[socket.socket]:
        """Yield a stream to a place that has answered; no read takes longer than `limit_s`.

        `ask` asks for what changes nothing there and hears the answer: on a fresh stream
        once more where a kept one has ended without it.
        """
        kept = self._take(place)
        stream = kept or place.connect(limit_s)
        try:
            try:
                stream.settimeout(limit_s)
                ask(stream)
            except (ConnectionError, ssl.SSLEOFError):
                if kept is None:
                    raise
                stream.close()
                stream = place.connect(limit_s)
                ask(stream)
            yield stream
        except BaseException:
            stream.close()
            raise
        with self._lock:
            self._kept.append((place, stream, time.monotonic()))
        self.trim()

    def _take(self, place: ShardPlace) -> socket.socket | None:
        self.trim()
        with self._lock:
            found = [one for one in self._kept if one[0] == place][-1:]
            for one in found:
                self._kept.remove(one)
        return found[0][1] if found else None

    def trim(self) -> None:
        """Close those that have waited too long or are too many, the oldest first."""
        since, counts = time.monotonic() - self._keep_s, Counter[ShardPlace]()
        with self._lock:
            for place, stream, kept_at in (before := self._kept[::-1]):
                counts[place] += 1
                is_many = counts[place] > KEPT_EACH or counts.total() > KEPT_ALL
                if is_many or kept_at < since:
                    stream.close()
            self._kept = [one for one in before[::-1] if one[1].fileno() >= 0]

    def close(self) -> None:
        """Close all that wait, and from now on each when it is done."""
        self._keep_s = -math.inf
        self.trim()


def read_place(path: Path) -> ShardPlace:
    """Return what a connection file names, or raise ``STO-C045``."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_FILE_BYTES), type=ShardPlace)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            "STO-C045",
            f"{path.name} is no shard's connection file: {type(error).__name__}",
            hint="pass the connection.json in the directory of `stoilo learn shard`",
        ) from None
