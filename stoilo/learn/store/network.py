"""A shard as a network service: `stoilo learn shard`, one process, one file, many clients.

DIR/shard.db         the cells, each acknowledged push
DIR/vectors/NAME/    generations of a training's vectors
DIR/connection.json  0600: address, token and CA; the token stays over restarts
DIR/tls/             certificate of the service

A stranger gets a handshake, one frame of at most `TOKEN_BYTES` and `GREETING_S` seconds; only
so many of them at a time. Who has the token is the project's own: he gets the protocol of
`process`, one thread a stream. Cells are one shard that all clients share; vectors belong
to the stream that opened them, and its end frees their files for the next one.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from stoilo.core import frames
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.files import write_durably
from stoilo.core.listen import bracket, listen, parse_address
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import (
    CONNECTION_FILE,
    TOKEN_BYTES,
    ShardPlace,
    read_place,
)
from stoilo.learn.store.process import load_functions, serve
from stoilo.learn.store.shards import LocalShard, Shard
from stoilo.learn.store.values import encode
from stoilo.learn.store.vectors import LocalVectors, VectorShard
from stoilo.server.tls import LOCAL_NAMES, ensure_tls

GREETING_S = 10.0  # what a handshake, and then the token, may take
STRANGERS = 32  # who may be greeted at a time; others are hung up on
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}  # s, s, times
T = TypeVar("T")


class Shared(Shard):
    """The cells as one stream has them: its end closes nothing."""

    def __init__(self, shard: LocalShard) -> None:
        self._shard = shard

    def ask(self, command: p.Command[T]) -> T:
        """Do a command; see `Shard.ask`."""
        return self._shard.ask(command)

    def close(self) -> None:
        """Leave the file open: others have it, too."""


class Taken(LocalVectors):
    """Vectors as the one stream has them that took their name."""

    def __init__(self, size: int, folder: Path, taken: set[str]) -> None:
        if folder.name in taken:
            raise UsageError("STO-T023", f"vectors {folder.name!r} are being used")
        super().__init__(size, folder)
        self._name, self._taken = folder.name, taken
        taken.add(folder.name)

    def close(self) -> None:
        """Close the files and give up the name."""
        super().close()
        self._taken.discard(self._name)


class TokenService:
    """A port behind which only who has a token is heard, each stream in a thread."""

    def __init__(self, data: Path, address: str, names: tuple[str, ...] = ()) -> None:
        """Bind the port; `names`: more of the machine's, for TLS.

        Raises:
            UsageError: ``STO-R090``.
            InternalError: ``STO-U006``, the port is taken.
        """
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._data = data
        self._tokens: dict[str, str] = {}  # whose → token
        self._strangers = threading.BoundedSemaphore(STRANGERS)
        self._listener = listen(address)
        try:
            self._listener.listen()
            self._secure(parse_address(address).host, names)
        except BaseException:
            self._listener.close()
            raise

    def _secure(self, host: str, names: tuple[str, ...]) -> None:
        """Make the certificate."""
        folder = self._data / "tls"
        tls = ensure_tls(folder, datetime.now(UTC), (*LOCAL_NAMES, host, *names))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(folder / "server.pem", folder / "server.key")
        self._ca, port = tls.ca.decode(), self._listener.getsockname()[1]
        self.address = f"{bracket([*names, host][0])}:{port}"

    def admit(self, owner: str, token: str, path: Path) -> ShardPlace:
        """Let a token in as `owner`'s and write the file that opens the port with it."""
        place = ShardPlace(self.address, token, self._ca)
        write_durably(path, msgspec.json.encode(place) + b"\n", mode=0o600)
        self._tokens[owner] = token
        return place

    def run(self) -> None:
        """Serve until the listener is closed."""
        while True:
            stream, _ = self._listener.accept()
            if not self._strangers.acquire(blocking=False):
                stream.close()
                continue
            threading.Thread(target=self._attend, args=(stream,), daemon=True).start()

    def close(self) -> None:
        """Take no more streams."""
        self._listener.close()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer somebody whose token is `owner`'s, until his stream ends."""
        raise NotImplementedError

    def _attend(self, plain: socket.socket) -> None:
        try:
            stream, owner = self._greet(plain)
        except (OSError, StoiloError):  # a stranger: nobody to tell
            plain.close()
            return
        finally:
            self._strangers.release()
        with stream:
            try:
                self.talk(stream, owner)
            except (OSError, TrustError):  # the other side is gone, or talks nonsense
                return

    def _greet(self, plain: socket.socket) -> tuple[socket.socket, str]:
        """Return the stream of one who has a token; raises for everybody else."""
        _keep_alive(plain)
        plain.settimeout(GREETING_S)
        stream = self._context.wrap_socket(plain, server_side=True)
        try:
            owner = _check_token(stream, self._tokens)
        except BaseException:
            stream.close()
            raise
        stream.settimeout(None)
        return stream, owner


class ShardService(TokenService):
    """The shard of a folder, and the port at which it is served."""

    def __init__(self, data: Path, address: str, names: tuple[str, ...] = ()) -> None:
        """Open the file and bind the port; `names`: more of the machine's, for TLS.

        Raises:
            UsageError: ``STO-T023``, another process serves the folder; ``STO-R090``.
            InternalError: ``STO-U006``, the port is taken.
        """
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._shard = LocalShard(data / "shard.db", is_shared=True)
        self._lock, self._taken = threading.Lock(), set[str]()
        try:
            super().__init__(data, address, names)
            path = data / CONNECTION_FILE  # the token of an earlier start stays
            token = read_place(path).token if path.exists() else ""
            self.place = self.admit("", token or secrets.token_urlsafe(32), path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Take no more streams and close the file; what is being applied ends first."""
        if hasattr(self, "_listener"):
            super().close()
        self._shard.close()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Serve the shard that the stream asks for first."""
        del owner  # there is one token
        serve(stream, self.open)

    def open(self, request: p.OpenShard | p.OpenVectors) -> Shard | VectorShard:
        """Return what a stream asked for; no client names a path of this machine."""
        if isinstance(request, p.OpenShard):
            self._shard.admit(load_functions(request.functions))
            return Shared(self._shard)
        if not _NAME.fullmatch(request.path):
            raise UsageError("STO-T040", f"{request.path[:40]!r} names no vectors")
        folder = self._data / "vectors"
        folder.mkdir(mode=0o700, exist_ok=True)
        with self._lock:
            return Taken(request.size, folder / request.path, self._taken)


def _check_token(
    stream: socket.socket,
    tokens: Mapping[str, str],
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Return whose token comes; raises ``STO-T038`` after saying that it is nobody's."""
    deadline = now() + GREETING_S
    given = frames.receive_frame(
        stream, most=TOKEN_BYTES, code="STO-T038", header=8, deadline=deadline
    )
    known = [
        owner
        for owner, token in tokens.items()
        if hmac.compare_digest(given or b"", token.encode())
    ]
    if not known:
        refused = p.Refused("denied", "STO-R001", "the shard does not know this token")
        p.send_frame(stream, refused)
        raise TrustError("STO-T038", refused.message)
    p.send_frame(stream, p.Answer(encode(None)))
    return known[0]


def _keep_alive(stream: socket.socket) -> None:
    # A client whose machine vanished must not keep its vectors' files for ever.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
