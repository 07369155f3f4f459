"""A shard in a process of its own: started here, and started again when it dies.

Requests for cells may be repeated without harm (pushes carry marks), so one whose answer did
not come is sent again to the next process: what was acknowledged is in the shard's file.
Vectors are calculated with in memory; a shard of vectors whose process has died is lost, and
the training goes on from its checkpoint.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast, get_args

from stoilo.core.errors import (
    InternalError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.learn.store import protocol as p
from stoilo.learn.store.functions import UpdateFunction
from stoilo.learn.store.shards import Shard
from stoilo.learn.store.values import decode, encode
from stoilo.learn.store.vectors import VectorShard

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
    for kind in (UsageError, PolicyRefusal, TrustError, UnreachableError)
}
T = TypeVar("T")
V = TypeVar("V")


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


class _Process:
    """The process behind a shard; requests are sent one after the other.

    Attributes:
        started: how many processes there have been.
        moved_bytes: sent to them.
    """

    def __init__(
        self,
        opening: p.OpenShard | p.OpenVectors,  # the first request to each process
        *,
        lives: int,  # how many processes one request may use up
        # How long a process may take for one request before it is killed
        limit_s: float,
        # How long to wait for the file, which the process of a trainer that was
        # killed lets go a moment later
        takeover_s: float,
        # What to start; the socket's descriptor is its last argument
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._opening, self._program = opening, tuple(program)
        self._lives, self._limit_s, self._takeover_s = lives, limit_s, takeover_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._is_open = self._is_closed = False
        self.started = self.moved_bytes = 0
        self._start()

    @property
    def pid(self) -> int:
        """The process that serves now; 0 when none does."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """End the process; it closes its file."""
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
            family = _FAMILIES.get(answer.family, InternalError)
            raise family(answer.code, answer.message)
        try:
            return cast("T", decode(answer.body, _answer_of(type(command))))
        except TrustError as error:
            raise TrustError("STO-T038", f"a shard's answer: {error.message}") from None

    def exchange(self, request: p.Command[T]) -> p.Response:
        """Return the answer to `request`, of as many processes as it may use up."""
        if self._is_closed:
            return p.Refused("usage", "STO-T037", "the shard is closed")
        for _ in range(self._lives):
            try:
                return self._open() or self._send(request)
            except OSError:
                self._end(kill=True)
            except TrustError:  # half an answer may be on the way
                self._end(kill=True)
                raise
        self._is_closed = self._lives == 1
        raise UnreachableError(
            "STO-T037",
            f"the shard's process ended {self._lives} times over one request",
            hint="start the training again: it goes on from its checkpoint",
        )

    def _open(self) -> p.Refused | None:
        """Let the process that runs take up the shard; return why it does not."""
        if self._process is None:
            self._start()
        if not self._is_open:
            answer = self._send(self._opening)
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
        ours, theirs = socket.socketpair()
        ours.settimeout(self._limit_s)
        with theirs:
            try:
                process = subprocess.Popen(
                    [*self._program, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=child_environment(),
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                ours.close()
                raise
        self._connection, self._process, self._is_open = ours, process, False
        # A shard that nobody closed ends with the object, not with the interpreter.
        self._finish = weakref.finalize(self, _finish, ours, process, self._limit_s)
        self.started += 1

    def _end(self, *, kill: bool = False) -> None:
        if kill and self._process is not None:
            self._process.kill()
        self._finish()
        self._connection = self._process = None
        self._is_open = False


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


class RemoteShard(Shard):
    """A shard of cells that may be killed."""

    def __init__(
        self,
        path: Path,  # the shard's file
        # Update functions besides the built-in ones
        functions: Iterable[UpdateFunction] = (),
        *,
        lives: int = 5,  # how many processes one request may use up
        # How long a process may take for one request before it is killed
        limit_s: float = 60.0,
        # How long to wait for the file of a server that was killed
        takeover_s: float = 10.0,
        # What to start; the socket's descriptor is its last argument
        program: Sequence[str] = PROGRAM,
    ) -> None:
        sources = [
            p.FunctionSource(f.name, f.source, f.entry, f.digest) for f in functions
        ]
        self.process = _Process(
            p.OpenShard(str(path.absolute()), sources),
            lives=lives,
            limit_s=limit_s,
            takeover_s=takeover_s,
            program=program,
        )

    def close(self) -> None:
        """End the process; it closes its file."""
        self.process.close()

    def ask(self, command: p.Command[T]) -> T:
        """Ask the process, in as many frames as it takes; see `Shard.ask`.

        What is asked for or given in several frames is of several moments.
        """
        asked: object = command
        match asked:
            case p.ReadCells(keys):
                return cast("T", self._read(keys))
            case p.CreateCells(values):
                for part in _batches(values.items()):
                    self.process.ask(p.CreateCells(dict(part)))
                return cast("T", None)
            case p.AcceptCells(cells):
                for some in _batches(cells.items()):
                    self.process.ask(p.AcceptCells(dict(some)))
                return cast("T", None)
            case p.ApplyPush(push):
                # Each key has marks of its own: what a killed process did counts once.
                pushes = [
                    p.Push(push.source, push.sequence, [change for _, change in few])
                    for few in _batches((one.key, one) for one in push.changes)
                ]
                done = [self.process.ask(p.ApplyPush(one)) for one in pushes]
                return cast("T", sum(done))
        return self.process.ask(command)

    def _read(self, keys: Sequence[str]) -> dict[str, p.Cell]:
        left, found = list(keys), dict[str, p.Cell]()
        while left:
            cells = self.process.ask(p.ReadCells(left))
            if not cells or [*cells] != left[: len(cells)]:
                raise TrustError("STO-T038", "a shard gave other cells than asked for")
            found |= cells
            left = left[len(cells) :]
        return found


def _batches(items: Iterable[tuple[str, V]]) -> Iterator[list[tuple[str, V]]]:
    """Yield keys and what belongs to each in lists that fit a frame."""
    batch: list[tuple[str, V]] = []
    size = 0
    for key, item in items:
        weight = len(key) + len(encode(item))
        if batch and size + weight > p.BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, item))
        size += weight
    if batch:
        yield batch


class RemoteVectors(VectorShard):
    """A shard of vectors in its own process.

    What goes to and fro is names and scalars, but for ranges that are dealt out and
    gathered: volunteers' answers, and the point of a pass. Saving moves no vector: the
    shard writes its own files, and the trainer's checkpoint holds the generation.
    """

    def __init__(
        self,
        size: int,  # entries of its range
        folder: Path,  # of its files
        *,
        # A process that does not answer for so long is given up
        limit_s: float = 600.0,
        # How long the process of a killed trainer may take to end
        takeover_s: float = 60.0,
    ) -> None:
        self.size = size
        # One life: a second process would have none of the vectors.
        self.process = _Process(
            p.OpenVectors(str(folder.absolute()), size),
            lives=1,
            limit_s=limit_s,
            takeover_s=takeover_s,
        )

    def ask(self, command: p.Command[T]) -> T:
        """Ask the process; see `VectorShard.ask`."""
        return self.process.ask(command)

    def close(self) -> None:
        """End the process."""
        self.process.close()
