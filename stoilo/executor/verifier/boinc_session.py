"""A task as its BOINC client holds it: a thread that obeys, reports and keeps checkpoints.

Every 0.1 s it takes heartbeat and control, every second it writes the status and looks
whether the client still lives. Suspend and resume reach the jailed child; quit, abort and a
lost client end its run, and the process's main thread then leaves with the ending's code,
without a result. Should it be busy elsewhere (a large runtime is being unpacked), the
process ends anyway: what it writes is written so that it may stop anywhere.

The two talk through shared memory: eight channels of one message each, in a mapped file of
the slot that the client makes.

    offset = channel · 1024:  byte 0 full (1) or empty (0), then text, ended by NUL

A sender writes only into an empty channel, text first and flag last; a receiver copies,
then clears the flag. What the other side wrote is hostile: at most 1,023 bytes a message are
looked at, for the few tags that are known, and all else is ignored.
Source: BOINC, ``lib/app_ipc.h`` and ``api/boinc_api.cpp`` (facts: boinc.md §4.3, §4.4).
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final, Self

from stoilo.core.errors import InternalError, StoiloError
from stoilo.executor.verifier.boinc_slot import SlotInfo
from stoilo.executor.verifier.checkpoints import (
    Checkpoint,
    CheckpointFile,
    KeptRun,
    Reckoning,
    render_status,
)
from stoilo.sandbox.process.channel import Progress
from stoilo.sandbox.process.exchange import Exchange

log = logging.getLogger(__name__)

MMAP_FILE: Final = "boinc_mmap_file"
CHANNEL_BYTES: Final = 1024
SEGMENT_BYTES: Final = 8 * CHANNEL_BYTES
HEARTBEAT: Final = b"<heartbeat/>"
"""A client's sign of life; what it measured of the application may follow."""

_TEXT_BYTES: Final = CHANNEL_BYTES - 2  # the flag before it, NUL after it
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Channel(IntEnum):
    """The channels that we use, by their place in the segment."""

    CONTROL_REQUEST = 0
    HEARTBEAT = 4
    APP_STATUS = 5


class Control(Enum):
    """What a client may ask of an application; of its other words none is for us."""

    SUSPEND = "suspend"
    RESUME = "resume"
    QUIT = "quit"
    ABORT = "abort"


class Segment:
    """A mapped segment; either side's."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory

    def put(self, channel: Channel, text: bytes) -> bool:
        """Send `text`; False when the last message has not been read yet.

        Raises:
            ValueError: `text` is longer than a channel holds, or has a NUL in it.
        """
        if len(text) > _TEXT_BYTES or b"\0" in text:
            raise ValueError("the message does not fit")
        start = channel * CHANNEL_BYTES
        if self._memory[start]:
            return False
        self._memory[start + 1 : start + 2 + len(text)] = text + b"\0"
        self._memory[start] = 1  # last: the other side looks at this byte alone
        return True

    def take(self, channel: Channel) -> bytes | None:
        """Return the message that waits, None when there is none."""
        start = channel * CHANNEL_BYTES
        if not self._memory[start]:
            return None
        message = bytes(self._memory[start + 1 : start + CHANNEL_BYTES])
        self._memory[start] = 0
        return message.partition(b"\0")[0]

    def close(self) -> None:
        """Unmap it."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()


def open_segment(path: Path) -> Segment | None:
    """Map the segment at `path`; None when there is no file.

    Raises:
        InternalError: STO-F038 it is a link, no plain file, somebody else's, or of another
            size than a client makes.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable("it is a link or cannot be opened") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise _unusable("it is no plain file of this user")
        if status.st_size != SEGMENT_BYTES:
            raise _unusable(f"it is not {SEGMENT_BYTES} bytes long")
        return Segment(mmap.mmap(descriptor, SEGMENT_BYTES))
    except (OSError, ValueError) as error:
        raise _unusable("it cannot be mapped") from error
    finally:
        os.close(descriptor)


def parse_control(text: bytes) -> frozenset[Control]:
    """Return what a control message asks for; unknown words ask for nothing."""
    return frozenset(one for one in Control if f"<{one.value}/>".encode() in text)


def _unusable(reason: str) -> InternalError:
    return InternalError("STO-F038", f"{MMAP_FILE} cannot be used: {reason}")


SILENCE_S: Final = 30.0
"""How long a client whose process cannot be found may be silent, s."""


class QuitReason(Enum):
    """Why the process ends before its task has; the value is its exit code.

    Without the finish file 0 means "start it again"; 194 is BOINC's "aborted by client"
    (EXIT_ABORTED_BY_CLIENT).
    """

    QUIT = 0
    ABORT = 194


@dataclass(frozen=True, slots=True)
class Standing:
    """What a task has to do now."""

    suspended: bool = False  # whether it stands still
    ending: QuitReason | None = None  # why it ends, None to go on


def heed(standing: Standing, wanted: frozenset[Control]) -> Standing:
    """Return the standing after one message; an ending is never taken back."""
    suspended = standing.suspended
    if Control.SUSPEND in wanted:
        suspended = True
    if Control.RESUME in wanted:
        suspended = False
    ending = standing.ending
    if Control.QUIT in wanted:
        ending = ending or QuitReason.QUIT
    if Control.ABORT in wanted:
        ending = QuitReason.ABORT
    return Standing(suspended, ending)


def is_lost(
    silent_s: float, *, exists: bool, was_parent: bool, is_parent: bool
) -> bool:
    """Whether the client has gone.

    A process of its number may be another by now, or not be visible from here: so the
    end of our parent is believed at once, and a missing number only in silence.
    """
    # Orphans get another parent at once, whereas a number can be given out again.
    return (was_parent and not is_parent) or (not exists and silent_s > SILENCE_S)


LISTEN_S: Final = 0.1
REPORT_S: Final = 1.0
LEAVE_S: Final = 20.0
"""How long the main thread may take to leave once the task has to end, s; BOINC's own
patience is 60 s."""


class Session:
    """Listens to a client while it is entered; keeps the run's checkpoint and its child.

    Args:
        info: what the client said of the task.
        segment: the memory shared with it, None without a client; closed at the end.
        clock: monotonic, s.
        leave: ends the process at once with an exit code.
        patience_s: how long the main thread may take to leave before that, s.
    """

    def __init__(
        self,
        info: SlotInfo,
        segment: Segment | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
        patience_s: float = LEAVE_S,
    ) -> None:
        self._info = info
        self._segment = segment
        self._clock = clock
        self._leave = leave
        self._patience_s = patience_s
        self._file: CheckpointFile | None = None
        self._lock = threading.Condition()  # notified when the standing changes
        self._standing = Standing()
        self._heard = clock()
        self._was_parent = os.getppid() == info.client_pid
        self._reckoning = Reckoning(info, clock())
        self._exchange: Exchange | None = None
        self._quit_asked = False  # no Event: a signal handler may hold its lock
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="boinc", daemon=True)

    def __enter__(self) -> Self:
        self._listen()  # what was asked before counts from the beginning
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        if self._segment is not None:
            self._segment.take(Channel.APP_STATUS)
            last = render_status(self._reckoning.status())
            self._segment.put(Channel.APP_STATUS, last)  # read when we have ended
            self._segment.close()

    @property
    def ending(self) -> QuitReason | None:
        """Why the process has to end without a result, None when it has not to."""
        return self._standing.ending

    def ask_to_quit(self) -> None:
        """End as a client's quit does; from a signal handler."""
        self._quit_asked = True

    def keep_in(self, file: CheckpointFile) -> None:
        """Keep what the task yields there; before, and without it, nothing is kept."""
        self._file = file

    def finish(self) -> None:
        """Report the task as done, at the latest when the session ends."""
        with self._lock:
            self._reckoning.finish()

    def begin(self, run: KeptRun) -> Checkpoint | None:
        """Take up a task.

        Raises:
            InternalError: STO-X008 the disk refuses.
        """
        kept = self._file.load(run.admission, run.limits) if self._file else None
        with self._lock:
            self._reckoning.begin(run, kept)
        return kept

    def watch(self, exchange: Exchange) -> None:
        """Take the child that is about to start.

        Waits while the task is suspended: a short one would end before it can be stopped.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._standing.suspended or self.ending)
            self._exchange = exchange
            self._reckoning.take_child(exchange)
            exchange.hear(self._hear)
            self._pass_on()

    def forget(self) -> None:
        """Forget the checkpoint."""
        with self._lock:
            self._reckoning.forget()
            if self._file is not None:
                self._file.forget()

    def _hear(self, progress: Progress) -> None:
        """Take what the run tells (hostile but bounded), in the thread that serves it."""
        with self._lock:
            self._reckoning.hear(progress)

    def _serve(self) -> None:
        report_at = self._clock()
        while not self._closed.wait(LISTEN_S) and self.ending is None:
            self._listen()
            if self._clock() >= report_at:
                report_at = self._clock() + REPORT_S
                self._look_out()
                self._report()
        # Where the main thread takes long to leave: BOINC would kill us after a minute
        # with SIGKILL, and with it the exit code is lost.
        if self.ending is not None and not self._closed.wait(self._patience_s):
            self._leave(self.ending.value)

    def _listen(self) -> None:
        """Take heartbeat and control; obey."""
        wanted = frozenset({Control.QUIT} if self._quit_asked else ())
        if self._segment is not None:
            beat = self._segment.take(Channel.HEARTBEAT)
            if beat is not None and HEARTBEAT in beat:
                self._heard = self._clock()
            asked = self._segment.take(Channel.CONTROL_REQUEST)
            wanted |= parse_control(asked) if asked is not None else frozenset()
        self._obey(wanted)

    def _look_out(self) -> None:
        pid = self._info.client_pid
        if pid and is_lost(
            self._clock() - self._heard,
            exists=_exists(pid),
            was_parent=self._was_parent,
            is_parent=os.getppid() == pid,
        ):
            log.warning("the client has gone")
            self._obey(frozenset({Control.QUIT}))

    def _obey(self, wanted: frozenset[Control]) -> None:
        standing = heed(self._standing, wanted)
        if standing == self._standing:
            return
        # Written before the child is killed: afterwards its newest state would be gone.
        if standing.ending is QuitReason.QUIT:
            self._save(at_once=True)
        with self._lock:
            self._standing = standing
            self._lock.notify_all()
            self._pass_on()

    def _pass_on(self) -> None:
        if self._exchange is None:
            return
        if self._standing.ending is not None:
            self._exchange.cancel()
        elif self._standing.suspended:
            self._exchange.suspend()
        else:
            self._exchange.resume()

    def _report(self) -> None:
        if self._standing.suspended:
            return
        self._save(at_once=False)
        if self._segment is not None:
            with self._lock:
                status = self._reckoning.status()
            self._segment.put(Channel.APP_STATUS, render_status(status))

    def _save(self, *, at_once: bool) -> None:
        """Write the newest state that was not written yet, when it is due or `at_once`.

        A disk that refuses costs the checkpoint, not the task.
        """
        if self._file is None:
            return
        with self._lock:
            due = self._reckoning.due(self._clock(), at_once=at_once)
        if due is None:
            return
        try:
            saved = self._file.save(due.checkpoint)
        except StoiloError as error:
            log.warning("no checkpoint: %s", error)
            saved = False
        with self._lock:
            self._reckoning.settle(due, self._clock(), saved=saved)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True
