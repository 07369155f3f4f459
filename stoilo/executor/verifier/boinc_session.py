"""A task as its BOINC client holds it: a thread that obeys, reports and keeps checkpoints.

Every 0.1 s it takes heartbeat and control, every second it writes the status and looks
whether the client still lives. Suspend and resume reach the jailed child; quit, abort and a
lost client end its run, and the process's main thread then leaves with the ending's code,
without a result. Should it be busy elsewhere (a large runtime is being unpacked), the
process ends anyway: what it writes is written so that it may stop anywhere.
Source: boinc.md §4.3, §4.4.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Protocol, Self

from stoilo.core.errors import StoiloError
from stoilo.core.limits import RunLimits
from stoilo.executor.verifier.boinc_shm import (
    HEARTBEAT,
    AppStatus,
    Channel,
    Control,
    Segment,
    parse_control,
    render_status,
)
from stoilo.executor.verifier.boinc_slot import SlotInfo
from stoilo.executor.verifier.checkpoints import Checkpoint, CheckpointFile, KeptRun
from stoilo.sandbox.process.channel import Progress
from stoilo.sandbox.process.exchange import Exchange

SILENCE_S: Final = 30.0
"""How long a client whose process cannot be found may be silent, s."""


class QuitReason(Enum):
    """Why the process ends before its task has; the value is its exit code.

    Without the finish file 0 means "start it again"; 194 is BOINC's "aborted by client"
    (EXIT_ABORTED_BY_CLIENT).
    """

    QUIT = 0
    ABORT = 194

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return int(self.value)


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


@dataclass(frozen=True, slots=True)
class Lookout:
    """What is known of the client's life."""

    heard: float  # when it was last heard of, s
    is_parent: bool  # whether it started this very process

    def hear(self, now: float) -> Lookout:
        """Return the lookout after a sign of life."""
        return dataclasses.replace(self, heard=now)

    def is_lost(self, now: float, *, exists: bool, is_parent: bool) -> bool:
        """Whether the client has gone.

        A process of its number may be another by now, or not be visible from here: so the
        end of our parent is believed at once, and a missing number only in silence.

        `now`: s.
        """
        # Orphans get another parent at once, whereas a number can be given out again.
        if self.is_parent and not is_parent:
            return True
        return not exists and now - self.heard > SILENCE_S


ALMOST: Final = 0.99
"""As far as a task gets that does not tell: its time says nothing about its end."""


class Child(Protocol):
    """What is asked of a run: `stoilo.sandbox.process.exchange.Exchange`."""

    def cpu_s(self) -> float:
        """Return the child's processor time, s."""
        ...

    def group_cpu_s(self) -> float:
        """Return the same with the zygote's, s."""
        ...

    def elapsed_s(self) -> float:
        """Return how long the run has lasted, s."""
        ...


@dataclass(frozen=True, slots=True)
class Due:
    """A checkpoint that is to be written, and the task's time at its state, s."""

    checkpoint: Checkpoint
    cpu_time: float


class Reckoning:
    """The account of one slot's task.

    Args:
        info: what the client said of the task.
        now: monotonic, s.
        own_cpu: this process's own processor time, s.
    """

    def __init__(
        self,
        info: SlotInfo,
        now: float,
        own_cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._info = info
        self._own_cpu = own_cpu
        self._saved_at = now
        self._cpu_time = self._checkpoint_cpu = info.cpu_s
        self._run: KeptRun | None = None
        self._kept: Checkpoint | None = None
        self._child: Child | None = None
        self._newest: Due | None = None
        self._told = 0.0

    def begin(self, run: KeptRun, kept: Checkpoint | None) -> None:
        """Take up a task that goes on from `kept`, or begins."""
        self._run, self._kept, self._newest = run, kept, None
        self._told = kept.fraction if kept else 0.0

    def take_child(self, child: Child) -> None:
        """Take the child that runs it."""
        self._child = child

    def forget(self) -> None:
        """Forget what it went on from: it begins again."""
        self._kept = self._newest = None
        self._told = 0.0

    def hear(self, progress: Progress) -> None:
        """Take what the child tells (hostile, its fraction within 0 to 1)."""
        if progress.fraction is not None:
            self._told = progress.fraction
        if progress.state is None or self._run is None or self._child is None:
            return
        before = self._kept
        checkpoint = Checkpoint(
            admission=self._run.admission,
            step=progress.step,
            state=progress.state,
            cpu_s=self._child.cpu_s() + (before.cpu_s if before else 0.0),
            wall_s=self._child.elapsed_s() + (before.wall_s if before else 0.0),
            fraction=self._told,
        )
        if checkpoint.fits(self._run.admission, self._run.limits):
            self._newest = Due(checkpoint, self._count())

    def due(self, now: float, *, at_once: bool) -> Due | None:
        """Return what to write now, None for nothing.

        `now`: monotonic, s.
        """
        waited = now - self._saved_at >= self._info.checkpoint_period_s
        return self._newest if at_once or waited else None

    def settle(self, due: Due, now: float, *, saved: bool) -> None:
        """Note that `due` was written, or could not be: then a newer one is tried."""
        self._saved_at = now
        if self._newest is due:
            self._newest = None
        if saved:
            self._checkpoint_cpu = due.cpu_time

    def finish(self) -> None:
        """Note that the task is done."""
        self._told = 1.0

    def status(self) -> AppStatus:
        """Return what the client is told.

        It finds our processes below this one by itself; named as ``other_pid`` as well, their
        time and memory would count twice (BOINC, ``lib/procinfo.cpp``).
        """
        start, end = self._info.fraction_start, self._info.fraction_end
        return AppStatus(
            current_cpu_time=self._count(),
            checkpoint_cpu_time=self._checkpoint_cpu,
            fraction_done=start + (end - start) * self._fraction(),
        )

    def _count(self) -> float:
        """Return the task's processor time, s; it never falls."""
        child = self._child.group_cpu_s() if self._child else 0.0
        total = self._info.cpu_s + self._own_cpu() + child
        # A child that ends may take its time out of the sum; a client expects one that
        # only grows.
        self._cpu_time = max(self._cpu_time, total)
        return self._cpu_time

    def _fraction(self) -> float:
        if self._told:
            return self._told
        if self._run is None or self._child is None:
            return 0.0
        limits: RunLimits = self._run.limits
        earlier = self._kept.cpu_s if self._kept else 0.0
        return min((self._child.cpu_s() + earlier) / limits.cpu_s, ALMOST)


log = logging.getLogger(__name__)

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
        self._lookout = Lookout(clock(), os.getppid() == info.client_pid)
        self._reckoning = Reckoning(info, clock())
        self._exchange: Exchange | None = None
        self._quit_asked = False  # no Event: a signal handler may hold its lock
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="boinc", daemon=True)

    def __enter__(self) -> Self:
        self._listen()  # what was asked before counts from the beginning
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join()
        if self._segment is not None:
            last = render_status(self._reckoning.status())
            self._segment.replace(Channel.APP_STATUS, last)  # read when we have ended
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

    # ------------------------------------------------------------- the executor's side

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

    # --------------------------------------------------------------- the client's side

    def _serve(self) -> None:
        report_at = self._clock()
        while not self._closed.wait(LISTEN_S) and self.ending is None:
            self._listen()
            if self._clock() >= report_at:
                report_at = self._clock() + REPORT_S
                self._look_out()
                self._report()
        if self.ending is not None:
            self._end(self.ending)

    def _listen(self) -> None:
        """Take heartbeat and control; obey."""
        wanted = frozenset({Control.QUIT} if self._quit_asked else ())
        if self._segment is not None:
            beat = self._segment.take(Channel.HEARTBEAT)
            if beat is not None and HEARTBEAT in beat:
                self._lookout = self._lookout.hear(self._clock())
            asked = self._segment.take(Channel.CONTROL_REQUEST)
            wanted |= parse_control(asked) if asked is not None else frozenset()
        self._obey(wanted)

    def _look_out(self) -> None:
        pid = self._info.client_pid
        if pid and self._lookout.is_lost(
            self._clock(), exists=_exists(pid), is_parent=os.getppid() == pid
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

    def _end(self, ending: QuitReason) -> None:
        """Wait for the main thread to leave; leave without it where that takes long."""
        # BOINC would kill us after a minute with SIGKILL, and with it the exit code is
        # lost.
        if not self._closed.wait(self._patience_s):
            self._leave(ending.exit_code)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True
