"""The socket behind which the engine answers BOINC's scripts.

One process stays warm for all calls: nothing is imported and no jail is prepared anew for
a comparison. Each connection is one call with one answer, on a thread of its own, a
bounded number at a time; a slow one does not hold up others.

The socket lies in the project's own folder, for its owner and group only. Whoever can
open it can have results judged, and tell of ends; an end is looked up in BOINC's database
and not believed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.engines.stock.messages import (
    AGAIN,
    REQUEST_BYTES,
    AssimilateCall,
    CheckCall,
    CompareCall,
    PingCall,
    answer_senseless,
    parse_call,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.server.engines.stock.filestore import OutputName
    from stoilo.server.engines.stock.judging import Answer
    from stoilo.server.engines.stock.messages import Call

__all__ = ["Handover", "Judges", "Listens", "answer_call", "read_request"]

log = logging.getLogger(__name__)
_MODE: Final = 0o660
_BACKLOG: Final = 128
TALK_S: Final = 10.0
"""How long a script may take to say what it wants, s."""

_PAUSE_S: Final = 0.5
"""Pause after a connection that could not be taken, s: descriptors run out, say."""


class Judges(Protocol):
    """Judges results."""

    def check(self, output: OutputName) -> Answer:
        """See `judging.Judge`."""
        ...

    def compare(self, left: OutputName, right: OutputName) -> Answer:
        """See `judging.Judge`."""
        ...


class Listens(Protocol):
    """Takes ends of workunits."""

    def hear(self, *, name: str = "", boinc_id: int = 0) -> None:
        """See `assimilating.Listener`."""
        ...


def answer_call(call: Call, judge: Judges, listener: Listens) -> int:
    """Return the exit status for a call; our own trouble is "again", never "no"."""
    try:
        match call:
            case CheckCall(output):
                return judge.check(output).value
            case CompareCall(left, right):
                return judge.compare(left, right).value
            case AssimilateCall(name, boinc_id):
                listener.hear(name=name, boinc_id=boinc_id)
                return 0
            case PingCall():
                return 0
    except StoiloError as error:
        log.warning("a call of BOINC's waits: %s", error)
    except Exception:  # a bug of ours must neither blame a host nor lose an end
        log.exception("a call of BOINC's waits")
    return AGAIN


class Handover:
    """Listens at `path` from `open` to `close`.

    Args:
        path: of the socket; one left by a process that died is replaced.
        judge: for validators.
        listener: for assimilators.
        workers: calls answered at a time.
    """

    def __init__(
        self, path: Path, judge: Judges, listener: Listens, workers: int = 8
    ) -> None:
        self._path = path
        self._judge = judge
        self._listener = listener
        self._workers = workers
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closing = threading.Event()
        self._inode = 0

    def open(self) -> None:
        """Begin to answer; raises ``STO-B007`` when the socket cannot be made."""
        try:
            self._path.parent.mkdir(mode=0o750, exist_ok=True)
            self._path.unlink(missing_ok=True)
            self._socket = _listen(self._path)
            self._inode = self._path.stat().st_ino
        except OSError as error:
            raise InternalError(
                "STO-B007", f"BOINC's scripts cannot be heard (errno {error.errno})"
            ) from error
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="boinc-call")
        self._thread = threading.Thread(
            target=self._accept, args=(self._socket,), name="boinc-calls", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when every call in progress has its answer."""
        if self._socket is None:
            return
        self._closing.set()
        self._remove_own()
        self._socket.shutdown(socket.SHUT_RDWR)
        assert self._thread is not None  # noqa: S101 - opened together
        assert self._pool is not None  # noqa: S101 - opened together
        self._thread.join()
        self._pool.shutdown()
        self._socket.close()
        self._socket = None

    def _remove_own(self) -> None:
        """Take the socket away unless another has come in its place."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def _accept(self, listener: socket.socket) -> None:
        """Hand calls on until closed; what the system refuses now, it allows later."""
        assert self._pool is not None  # noqa: S101 - opened together
        while not self._closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if not self._closing.wait(_PAUSE_S):
                    log.error("BOINC's scripts wait (errno %s)", error.errno)  # noqa: TRY400 - says it all
                continue
            try:
                self._pool.submit(self._serve, connection)
            except RuntimeError as error:  # no further thread: the script asks again
                log.error("a call of BOINC's waits: %s", error)  # noqa: TRY400 - says it all
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Answer one call; a script that went away is run again by BOINC."""
        with connection:
            try:
                answer = self._answer(read_request(connection))
                connection.sendall(b"%d" % answer)
            except OSError as error:
                log.warning("a call of BOINC's was cut off (errno %s)", error.errno)

    def _answer(self, data: bytes) -> int:
        try:
            call = parse_call(data)
        except StoiloError as error:
            log.error("BOINC's scripts are not set up as they should be: %s", error)  # noqa: TRY400 - ours, complete
            return answer_senseless(data)
        return answer_call(call, self._judge, self._listener)


def _listen(path: Path) -> socket.socket:
    """Return a listening socket that the project's group may use.

    It is bound through its folder's descriptor: names of sockets are short, paths not.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(_MODE)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    finally:
        os.close(folder)
    return made


def read_request(
    connection: socket.socket, clock: Callable[[], float] = time.monotonic
) -> bytes:
    """Return a request up to its end, one byte more than allowed at most.

    Raises:
        TimeoutError: it has not come within `TALK_S` of the beginning, however often
            something of it came. So long does a connection hold a worker.
        OSError: the script went away.
    """
    end = clock() + TALK_S
    parts, left = [], REQUEST_BYTES + 1
    while left:
        rest = end - clock()
        if rest <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "the call did not end")
        connection.settimeout(rest)
        data = connection.recv(left)
        if not data:
            break
        parts.append(data)
        left -= len(data)
    connection.settimeout(TALK_S)
    return b"".join(parts)
