"""The socket behind which the engine answers BOINC's scripts.

    request   NAME NUL ARGUMENT NUL … , at most 8 KiB, ended by closing for writing
    answer    one digit: the exit status to end with, or 9: try again in a while

One process stays warm for all calls: nothing is imported and no jail is prepared anew for
a comparison. Each connection is one call with one answer, on a thread of its own, a
bounded number at a time; a slow one does not hold up others.

The socket lies in the project's own folder, for its owner and group only. Whoever can
open it can have results validated, and tell of ends; an end is looked up in BOINC's
database and not believed. Arguments are built from rows that hosts have a hand in; so they
are bounded and matched before anything is looked up.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.server.engines.stock import script
from stoilo.server.engines.stock.project.directory import output_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stoilo.server.engines.stock.assimilator import ScriptAssimilator
    from stoilo.server.engines.stock.project.directory import OutputName
    from stoilo.server.engines.stock.validator import ScriptValidator


CHECK: Final = "stoilo_validate"
COMPARE: Final = "stoilo_compare"
ASSIMILATE: Final = "stoilo_assimilate"
PING: Final = "stoilo_ping"  # no script: the doctor asks whether calls are answered
AGAIN: Final = 9
_TAKEN: Final = 0
_LATER: Final = 3
REQUEST_BYTES: Final = 8192

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_WORKUNIT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# How many files each script names.
_FILES: Final = {CHECK: 1, COMPARE: 2, PING: 0}
_PLAIN: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Call:
    """What a script asks, by its name."""

    script: str
    outputs: tuple[OutputName, ...] = ()  # one to check, two to compare
    # the workunit that has ended: its name, or BOINC's row
    name: str = ""
    boinc_id: int = 0


def parse_call(data: bytes) -> Call:
    """Return what a script asks; raises ``STO-B003``."""
    if len(data) > REQUEST_BYTES or not data.isascii():
        raise TrustError("STO-B003", "the script's call is too long or not ASCII")
    script, *arguments = data.decode().split("\0")
    if script == ASSIMILATE:
        return _assimilate(arguments)
    if script not in _FILES:
        raise TrustError("STO-B003", "no such script is known")
    # ids and run times may stand beside the files
    paths = [one for one in arguments if not _PLAIN.fullmatch(one)]
    if len(paths) != _FILES[script]:
        raise TrustError("STO-B003", f"the script was given {len(paths)} files")
    return Call(script, tuple(map(output_of, paths)))


def answer_unreadable(data: bytes) -> int:
    """Return the exit status for a call that cannot be parsed."""
    name = data.partition(b"\0")[0]
    return _TAKEN if name == ASSIMILATE.encode() else _LATER


def _assimilate(arguments: list[str]) -> Call:
    """Return the call for an end or a failure, as BOINC's versions put them.

    ``ID FILE…``; ``--error MASK NAME ID BATCH``, before that ``--error MASK ID``. A name
    that no workunit of ours has leaves BOINC's row to be looked up.
    """
    match arguments:
        case ["--error", _, number] if _NUMBER.fullmatch(number):
            return Call(ASSIMILATE, boinc_id=int(number))
        case ["--error", _, name, *_] if _WORKUNIT.fullmatch(name):
            return Call(ASSIMILATE, name=name)
        case ["--error", _, _, number, *_] if _NUMBER.fullmatch(number):
            return Call(ASSIMILATE, boinc_id=int(number))
        case [number, *_] if _NUMBER.fullmatch(number):
            return Call(ASSIMILATE, boinc_id=int(number))
        case _:
            raise TrustError("STO-B003", "the assimilator's arguments make no sense")


log = logging.getLogger(__name__)
_MODE: Final = 0o660
_BACKLOG: Final = 128
# How long a script may take to say what it wants, s.
TALK_S: Final = 10.0

# Pause after a connection that could not be taken, s: descriptors run out, say.
_PAUSE_S: Final = 0.5


class ScriptServer:
    """Listens at `path` until `close`.

    Args:
        path: of the socket; one left by a process that died is replaced.
        validator: for BOINC's validators.
        assimilator: for BOINC's assimilators.
        workers: calls answered at a time.

    Raises:
        InternalError: ``STO-U006``: the socket cannot be made.
    """

    def __init__(
        self,
        path: Path,
        validator: ScriptValidator,
        assimilator: ScriptAssimilator,
        workers: int = 8,
    ) -> None:
        self._path = path
        self._validator = validator
        self._assimilator = assimilator
        self._closing = threading.Event()
        try:
            path.parent.mkdir(mode=0o750, exist_ok=True)
            path.unlink(missing_ok=True)
            self._socket = _listen(path)
            self._inode = path.stat().st_ino
        except OSError as error:
            raise InternalError(
                "STO-U006", f"BOINC's scripts cannot be heard (errno {error.errno})"
            ) from error
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="boinc-call")
        self._thread = threading.Thread(
            target=self._accept, name="boinc-calls", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when every call in progress has its answer."""
        self._closing.set()
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:  # else another's by now
                self._path.unlink()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._pool.shutdown()
        self._socket.close()

    def _accept(self) -> None:
        """Hand calls on until closed; what the system refuses now, it allows later."""
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
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
        """Return the exit status for a call; our own trouble is "again", never "no"."""
        try:
            call = parse_call(data)
        except StoiloError as error:
            log.error("BOINC's scripts are not set up as they should be: %s", error)  # noqa: TRY400 - ours, complete
            return answer_unreadable(data)
        try:
            if call.script == CHECK:
                return self._validator.check(*call.outputs).value
            if call.script == COMPARE:
                return self._validator.compare(*call.outputs).value
            if call.script == ASSIMILATE:
                self._assimilator.hear(name=call.name, boinc_id=call.boinc_id)
        except StoiloError as error:
            log.warning("a call of BOINC's waits: %s", error)
        except Exception:  # a bug of ours must neither blame a host nor lose an end
            log.exception("a call of BOINC's waits")
        else:
            return _TAKEN
        return AGAIN


def _listen(path: Path) -> socket.socket:
    """Return a listening socket that the project's group may use."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_name(path) as name:
            made.bind(name)
        path.chmod(_MODE)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Yield a socket's name by its folder's descriptor: names are short, paths are not."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


PING_S: Final = 10.0


def ask_socket(path: Path, wait_s: float = PING_S) -> str:
    """Return why nothing answers behind a socket, empty when something does."""
    try:
        with (
            _short_name(path) as name,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made,
        ):
            made.settimeout(wait_s)
            made.connect(name)
            made.sendall(PING.encode())
            made.shutdown(socket.SHUT_WR)
            answer = made.recv(8)
    except TimeoutError:
        return (
            f"it takes calls and answers none within {wait_s:.0f} s:"
            " every worker is busy, or its thread has ended"
        )
    except OSError as error:
        return error.strerror or "no answer"
    return "" if answer.isdigit() else "it hangs up without an answer"


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


ENTRY_POINTS: Final = (CHECK, COMPARE, ASSIMILATE)


def entry_point_text(interpreter: str = sys.executable) -> str:
    """Return the script; `interpreter` runs it bare: no site, no environment."""
    source = Path(script.__file__).read_text(encoding="utf-8")
    return f"#!{interpreter} -IS\n{source}"
