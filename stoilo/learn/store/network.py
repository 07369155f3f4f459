"""A shard as a network service: `stoilo learn shard`, one process, one file, many clients.

DIR/shard.db         the cells, each acknowledged push; generations of vectors
DIR/connection.json  0600: address, token and CA; the token stays over restarts
DIR/tls/             certificate of the service

A stranger gets a handshake, one frame of at most `TOKEN_BYTES` and `GREETING_S` seconds; only
so many of them at a time. Who has the token is the project's own: he gets the protocol of
`process`, one thread a stream. Cells are shared by all clients; a space of vectors belongs
to the stream that began it, and its end frees the name for the next one.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from stoilo.client.session import Journal
from stoilo.client.sync import SyncConnection, connect_sync
from stoilo.core import frames
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.files import write_durably
from stoilo.core.listen import bracket, listen, parse_address
from stoilo.learn.core.tensors import flatten
from stoilo.learn.kernels import checks
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
from stoilo.server.tls import LOCAL_NAMES, ensure_tls

GREETING_S = 10.0  # what a handshake, and then the token, may take
STRANGERS = 32  # who may be greeted at a time; others are hung up on
IDLE = 64  # streams that may wait for their next request
IDLE_S = 120.0  # that one may wait, longer than who asks keeps it (`place.KEPT_S`)
_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}  # s, s, times
T = TypeVar("T")
find_fault: Callable[..., str] = checks.find_fault  # untyped: it travels as source


class Project:
    """The project whose volunteers get values from here: the shard's own connection.

    Args:
        file: connection file of the account whose tasks name the blobs; None: no project.
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self._lock = file, threading.Lock()
        self._connection: SyncConnection | None = None

    def store(self, value: object) -> p.Tagged:
        """Upload a version unless that was done; return its name.

        Raises:
            UsageError: ``STO-C045``, there is no project.
            UnreachableError: nobody answers there; the same again is safe.
        """
        stored = self._connect().put(value)
        return p.Tagged(stored.digest, stored.size)

    def fetch(self, task: str) -> object:
        """Return what a task ended in (hostile); raises as `store`."""
        return self._connect().restore_task(task).result()

    def _connect(self) -> SyncConnection:
        if self._file is None:
            raise UsageError(
                "STO-C045",
                "this shard knows no project",
                hint="start it with --project and a connection file of the trainer's account",
            )
        with self._lock:
            if self._connection is None:
                self._connection = connect_sync(self._file, journal=Journal(None))
            return self._connection

    def close(self) -> None:
        """Leave it."""
        if self._connection is not None:
            self._connection.close()


class Session(Shard):
    """The shard as one stream has it: a space is the stream's that began it, to its end."""

    def __init__(
        self, shard: LocalShard, taken: dict[str, Session], project: Project
    ) -> None:
        self._shard, self._taken, self._project = shard, taken, project

    def ask(self, command: p.Command[T]) -> T:
        """Do a command; see `Shard.ask`; raises ``STO-T023``, the space is another's."""
        asked: object = command
        if isinstance(asked, p.PublishCells):
            read = self._shard.read_tagged(dict.fromkeys(asked.keys, ""))
            found: dict[str, object] = {key: one.value for key, one in read.items()}
            found = {"": found} if asked.together else found
            return cast("T", {k: self._project.store(v) for k, v in found.items()})
        # At once for all threads: of two streams one has it.
        if (
            isinstance(asked, p.OfSpace)
            and self._taken.setdefault(asked.space, self) is not self
        ):
            raise UsageError("STO-T023", f"vectors {asked.space[:40]!r} are being used")
        match asked:
            case p.PublishRange():
                return cast("T", self._publish(asked))
            case p.TakeAnswer():
                return cast("T", self._take(asked))
        return self._shard.ask(command)

    def _publish(self, asked: p.PublishRange) -> p.Tagged:
        about = (asked.space, asked.name, asked.kinds)
        part = self._shard.ask(p.RoundRange(*about))
        return self._project.store({asked.key: part})

    def _take(self, asked: p.TakeAnswer) -> p.Taken:
        try:
            raw: Any = self._project.fetch(asked.task)
        except StoiloError as error:
            if not error.code.startswith("STO-D"):
                raise
            return p.Taken(str(error))  # it does not decode
        expected = {
            **msgspec.structs.asdict(asked),
            "tensors": asked.forms,
            "buffers": {},
        }
        fault = find_fault(raw, expected)
        if fault:
            return p.Taken(fault)
        arrays, none = raw["tensors"], np.zeros
        whole = flatten(
            {n: arrays.get(n, none(s)) for n, (_, s) in asked.forms.items()}
        )
        part = whole[asked.start : asked.stop]
        self._shard.ask(p.PutRange(asked.space, asked.name, part))
        return p.Taken("", raw["loss_sum"], raw["correct"])

    def close(self) -> None:
        """Forget the stream's vectors; the file stays open, others have it, too."""
        for space in [name for name, of in self._taken.copy().items() if of is self]:
            self._shard.leave(space)
            del self._taken[space]


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
        self._idle, self._idle_lock = dict[socket.socket, None](), threading.Lock()
        self._listener, self._is_closed = listen(address), False
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

    def admit_one(self) -> ShardPlace:
        """Let one token in, that of an earlier start if there was one."""
        return self.admit_again("", self._data / CONNECTION_FILE)

    def admit_again(self, owner: str, path: Path) -> ShardPlace:
        """Let `owner` in by what his file says since an earlier start, or a new token."""
        token = read_place(path).token if path.exists() else secrets.token_urlsafe(32)
        return self.admit(owner, token, path)

    def run(self) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                raise
            if not self._strangers.acquire(blocking=False):
                stream.close()
                continue
            threading.Thread(target=self._attend, args=(stream,), daemon=True).start()

    def close(self) -> None:
        """Take no more streams."""
        self._is_closed = True
        with suppress(OSError):  # wakes who waits for one
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer somebody whose token is `owner`'s, until his stream ends."""
        raise NotImplementedError

    def requests(self, stream: socket.socket, receive: Callable[[], T]) -> Iterator[T]:
        """Yield one request after the other, until `receive` raises; it may wait long.

        Whose turn it is to wait when `IDLE` do already takes the place of the one that has
        waited longest, which is hung up on: idle streams keep nobody out, and none stays.
        """
        while True:
            stream.settimeout(IDLE_S)
            with self._idle_lock:
                self._idle[stream] = None
                for one in [*self._idle][:-IDLE]:
                    del self._idle[one]
                    with suppress(OSError):  # its thread wakes and ends, and closes it
                        socket.socket.shutdown(one, socket.SHUT_RDWR)
            try:
                request = receive()
            finally:
                with self._idle_lock:
                    self._idle.pop(stream, None)
            yield request

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

    def __init__(
        self,
        data: Path,
        address: str,
        names: tuple[str, ...] = (),  # more of the machine's, for TLS
        project: Path | None = None,  # connection file, for `PublishCells`
    ) -> None:
        """Open the file and bind the port.

        Raises:
            UsageError: ``STO-T023``, another process serves the folder; ``STO-R090``.
            InternalError: ``STO-U006``, the port is taken.
        """
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._project = Project(project)
        self._shard = LocalShard(data / "shard.db", is_shared=True)
        self._taken: dict[str, Session] = {}
        try:
            super().__init__(data, address, names)
            self.place = self.admit_one()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Take no more streams and close the file; what is being applied ends first."""
        if hasattr(self, "_listener"):
            super().close()
        self._project.close()
        self._shard.close()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Serve the shard that the stream asks for first."""
        del owner  # there is one token
        serve(stream, self.open)

    def open(self, request: p.OpenShard) -> Shard:
        """Return the shard for a stream; no client names a path of this machine."""
        self._shard.admit(load_functions(request.functions))
        return Session(self._shard, self._taken, self._project)


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
