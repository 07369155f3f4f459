"""A shard in a process of its own: started here, and started again when it dies.

Every request may be repeated without harm (pushes carry marks), so one whose answer did
not come is sent again to the next process. What was acknowledged is in the shard's file.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stoilo.core.errors import (
    InternalError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.learn.environment import child_environment
from stoilo.learn.ps.functions import UpdateFunction
from stoilo.learn.ps.protocol import (
    AcceptCells,
    Cells,
    CreateCells,
    Done,
    DropCells,
    Entry,
    FunctionSource,
    Keys,
    ListKeys,
    OpenShard,
    ReadCells,
    Refused,
    Request,
    Response,
    batches,
    encode_push,
    open_entries,
    receive_response,
    send_frame,
)
from stoilo.learn.ps.shards import Cell, Push
from stoilo.learn.ps.values import Value

__all__ = ["PROGRAM", "RemoteShard"]

PROGRAM: Final = (sys.executable, "-P", "-m", "stoilo.learn.ps.process")
"""Without the current folder among those of modules: anybody's files may lie there."""
_IN_USE: Final = "STO-T077"
_PAUSE_S: Final = 0.05
_FAMILIES: Final[Mapping[str, type[StoiloError]]] = {
    kind.family: kind
    for kind in (UsageError, PolicyRefusal, TrustError, UnreachableError)
}
Answer = TypeVar("Answer", bound=msgspec.Struct)


class RemoteShard:
    """A `Keeper` whose shard may be killed; requests are sent one after the other."""

    def __init__(
        self,
        path: Path,
        functions: Iterable[UpdateFunction] = (),
        *,
        lives: int = 5,
        limit_s: float = 60.0,
        takeover_s: float = 10.0,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """Start the process; that it runs is seen at the first request.

        Args:
            path: the shard's file.
            functions: update functions besides the built-in ones.
            lives: how many processes one request may use up.
            limit_s: how long a process may take for one request before it is killed.
            takeover_s: how long to wait for the file, which the process of a server
                that was killed lets go a moment later.
            program: what to start; the socket's descriptor is its last argument.
        """
        sources = [
            FunctionSource(f.name, f.source, f.entry, f.digest) for f in functions
        ]
        self._opening = OpenShard(str(path.absolute()), sources)
        self._lives, self._limit_s, self._takeover_s = lives, limit_s, takeover_s
        self._program = tuple(program)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._is_open = self._is_closed = False
        self.started = 0
        self._start()

    @property
    def pid(self) -> int:
        """The process that serves now; 0 when none does."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """End the process; it closes its file."""
        with self._lock:
            self._is_closed = True
            self._end(kill=False)

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys, sorted."""
        return tuple(self._ask(ListKeys(), Keys).keys)

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells, those of a frame of one moment; ``STO-T074`` for an unknown key."""
        left, found = list(dict.fromkeys(keys)), dict[str, Cell]()
        while left:
            entries = self._ask(ReadCells(left), Cells).entries
            given = [entry.key for entry in entries]
            if not given or given != left[: len(given)]:
                raise TrustError("STO-T038", "a shard gave other cells than asked for")
            found |= open_entries(entries)
            left = left[len(given) :]
        return found

    def create(self, values: Mapping[str, Value]) -> None:
        """Make the cells that are not there yet."""
        for entries in batches(Entry.of(key, Cell(v)) for key, v in values.items()):
            self._ask(CreateCells(entries), Done)

    def apply(self, push: Push) -> int:
        """Apply what is new of a push; what a killed process did is not counted."""
        return sum(self._ask(part, Done).changed for part in encode_push(push))

    def accept(self, cells: Mapping[str, Cell]) -> None:
        """Take over cells from another shard, history included."""
        for entries in batches(Entry.of(key, cell) for key, cell in cells.items()):
            self._ask(AcceptCells(entries), Done)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget cells that another shard has taken over."""
        self._ask(DropCells(sorted(keys)), Done)

    def _ask(self, request: Request, kind: type[Answer]) -> Answer:
        """Return the answer to `request`, or raise what the shard refused.

        Raises:
            UnreachableError: ``STO-T037``, one process after the other ended.
        """
        with self._lock:
            answer = self._exchange(request)
        if isinstance(answer, Refused):
            family = _FAMILIES.get(answer.family, InternalError)
            raise family(answer.code, answer.message)
        if not isinstance(answer, kind):
            raise TrustError("STO-T038", "a shard answered another question")
        return answer

    def _exchange(self, request: Request) -> Response:
        for _ in range(self._lives):
            try:
                refused = self._open()
                answer = refused or self._send(request)
            except OSError:
                answer = None
            except TrustError:
                self._end(kill=True)
                raise
            if answer is not None:
                return answer
            self._end(kill=True)
        raise UnreachableError(
            "STO-T037",
            f"the shard's process ended {self._lives} times over one request",
        )

    def _open(self) -> Refused | None:
        """Have the file opened by a process that runs; return why it is not."""
        if self._is_closed:
            return Refused("usage", "STO-T037", "the shard is closed")
        if self._process is None:
            self._start()
        until = time.monotonic() + self._takeover_s
        while not self._is_open:
            answer = self._send(self._opening)
            if answer is None:
                raise ConnectionResetError
            is_taken = isinstance(answer, Refused) and answer.code == _IN_USE
            if isinstance(answer, Refused) and not (
                is_taken and time.monotonic() < until
            ):
                return answer
            self._is_open = not isinstance(answer, Refused)
            if not self._is_open:
                time.sleep(_PAUSE_S)
        return None

    def _send(self, request: Request) -> Response | None:
        connection = self._connection
        if connection is None:
            raise ConnectionResetError
        send_frame(connection, request)
        return receive_response(connection)

    def _start(self) -> None:
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
        self._connection, self._is_open = ours, False
        self.started += 1

    def _end(self, *, kill: bool) -> None:
        """Let the process end by itself, or kill it, and wait for that."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            if kill:
                self._process.kill()
            try:
                self._process.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._connection = self._process = None
        self._is_open = False
