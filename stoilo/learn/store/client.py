"""The client of a shard that is elsewhere: in a process started here, or on the network.

One exchange, two transports. A request whose answer did not come is sent again on the next
stream, as often as its shard allows: a process is started again here, a machine's by who runs
it. Closing the stream is what ends a process, or a connection; nothing else is agreed on.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast, get_args

from stoilo.core.errors import (
    DeniedError,
    InternalError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.core.frames import CutError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.values import decode

# -P: the current folder is not among those of modules, anybody's files may lie there.
PROGRAM: Final = (sys.executable, "-P", "-m", "stoilo.learn.store.process")
_IN_USE: Final = "STO-T023"
_PAUSE_S: Final = 0.05
_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"}
)
_THREADS: Final = ("MKL_", "OMP_", "OPENBLAS_")
_FAMILIES: Final[Mapping[str, type[StoiloError]]] = {
    kind.family: kind
    for kind in (UsageError, PolicyRefusal, TrustError, UnreachableError, DeniedError)
}
T = TypeVar("T")


def child_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what a shard's process gets of the variables: no secrets, no options of Python.

    Of ``PYTHONPATH`` the absolute folders stay; others depend on the current one. How many
    threads libraries use is the same there: sums then have the same bits.
    """
    kept = {
        name: value
        for name, value in given.items()
        if name in _INHERITED or name.startswith(_THREADS)
    }
    folders = given.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(filter(os.path.isabs, folders))
    return kept | ({"PYTHONPATH": path} if path else {})


class Client(ABC):
    """One side of a stream to a shard; requests are sent one after the other.

    Attributes:
        started: how many streams there have been, each to a process or a machine.
        moved_bytes: sent on them.
    """

    def __init__(
        self,
        opening: p.OpenShard | None,  # the first request on each stream
        *,
        lives: int,  # how many streams one request may use up
        # How long a shard may take for one request before it is given up
        limit_s: float,
        # How long to wait for the file, which the process of a trainer that was
        # killed lets go a moment later, and for a machine that does not listen
        takeover_s: float,
    ) -> None:
        self._opening = opening
        self._lives, self._limit_s, self._takeover_s = lives, limit_s, takeover_s
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._is_open = self._is_closed = False
        self.started = self.moved_bytes = 0

    @abstractmethod
    def _connect(self) -> socket.socket:
        """Return a new stream; raises ``OSError`` when nobody answers."""

    @abstractmethod
    def _disconnect(self, *, kill: bool) -> None:
        """Close the stream; `kill`: what is behind it may be stuck."""

    def close(self) -> None:
        """End the stream, and a process that was started for it."""
        with self._lock:
            self._is_closed = True
            self._end()

    def ask(self, command: p.Command[T]) -> T:
        """Return the answer to a command, or raise what the shard refused.

        Raises:
            UnreachableError: ``STO-T037``, one process after the other ended.
            TrustError: ``STO-T038``, it answered something else.
        """
        with self._lock:
            answer = self.exchange(command)
        if isinstance(answer, p.Refused):
            raise as_error(answer)
        try:
            return cast("T", decode(answer.body, _answer_of(type(command))))
        except TrustError as error:
            raise TrustError("STO-T038", f"a shard's answer: {error.message}") from None

    def exchange(self, request: p.Command[T]) -> p.Response:
        """Return the answer to `request`, on as many streams as it may use up."""
        if self._is_closed:
            return p.Refused("usage", "STO-T037", "the shard is closed")
        # A space is lost with its stream: only its beginning may be asked for again.
        is_lost = isinstance(request, p.OfSpace) and not isinstance(
            request, p.LoadGeneration
        )
        lives = 1 if is_lost else self._lives
        for _ in range(lives):
            try:
                return self._open() or self._send(request)
            except (OSError, CutError):
                self._end(kill=True)
            except TrustError:  # half an answer may be on the way
                self._end(kill=True)
                raise
        raise UnreachableError(
            "STO-T037",
            f"the other side was lost {lives} times over one request",
            hint="start the training again: it goes on from its checkpoint",
        )

    def _open(self) -> p.Refused | None:
        """Let the other side take up the shard; return why it does not."""
        if self._connection is None:
            self._start()
        if not self._is_open:
            answer = None if self._opening is None else self._send(self._opening)
            if isinstance(answer, p.Refused):
                return answer
            self._is_open = True
        return None

    def _send(self, request: p.Command[T]) -> p.Response:
        """Send a request, again while another process still holds the shard's file."""
        until = time.monotonic() + self._takeover_s
        while True:
            if self._connection is None:
                raise ConnectionResetError
            self.moved_bytes += p.send_frame(self._connection, request)
            answer = p.receive_response(self._connection)
            if answer is None:
                raise ConnectionResetError
            is_taken = isinstance(answer, p.Refused) and answer.code == _IN_USE
            if not is_taken or time.monotonic() >= until:
                return answer
            time.sleep(_PAUSE_S)

    def _start(self) -> None:
        self._connection, self._is_open = self._connect(), False
        self.started += 1

    def _end(self, *, kill: bool = False) -> None:
        if self._connection is not None:
            self._disconnect(kill=kill)
        self._connection, self._is_open = None, False


class ChildProcess(Client):
    """The other side is a process of ours, at the other end of a socket pair."""

    def __init__(
        self,
        opening: p.OpenShard,  # as `Client` has it
        *,
        # What to start; the socket's descriptor is its last argument
        program: Sequence[str] = PROGRAM,
        **limits: Any,  # noqa: ANN401 - as `Client` has them
    ) -> None:
        super().__init__(opening, **limits)
        self._program = tuple(program)
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    @property
    def pid(self) -> int:
        """The process that serves now; 0 when none does."""
        return self._process.pid if self._process is not None else 0

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(self._limit_s)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*self._program, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=child_environment(),
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                ours.close()
                raise
        # A shard that nobody closed ends with the object, not with the interpreter.
        self._finish = weakref.finalize(
            self, _finish, ours, self._process, self._limit_s
        )
        return ours

    def _disconnect(self, *, kill: bool) -> None:
        if kill and self._process is not None:
            self._process.kill()
        self._finish()
        self._process = None


class NetworkPeer(Client):
    """The other side is a `TokenService`, reached by TLS and token."""

    def __init__(
        self,
        opening: p.OpenShard | None,  # as `Client` has it
        place: ShardPlace,  # where it listens, and our credentials
        **limits: Any,  # noqa: ANN401 - as `Client` has them
    ) -> None:
        super().__init__(opening, **limits)
        self._place = place

    def _connect(self) -> socket.socket:
        """Wait for a shard that is being started again, then say who we are."""
        until = time.monotonic() + self._takeover_s
        while True:
            try:
                return self._place.connect(self._limit_s)
            except ConnectionRefusedError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE_S)

    def _disconnect(self, *, kill: bool) -> None:
        del kill  # it serves others, too
        if self._connection is not None:
            self._connection.close()


def as_error(refused: p.Refused) -> StoiloError:
    """Return the error that the other side had."""
    return _FAMILIES.get(refused.family, InternalError)(refused.code, refused.message)


@functools.cache
def _answer_of(command: type[p.Command[T]]) -> type[T]:
    """Return what a command is answered with: the argument of its base class."""
    (base,) = command.__orig_bases__  # type: ignore[attr-defined]  # a generic's own
    return cast("type[T]", get_args(base)[0])


def _finish(
    connection: socket.socket, process: subprocess.Popen[bytes], limit_s: float
) -> None:
    connection.close()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
