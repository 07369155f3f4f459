"""What a task has used, how far it is, and which of its states is to be kept.

No locks, threads or files: `session` holds one of these under its lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from stoilo.core.limits import RunLimits
from stoilo.executor.checkpoints import Checkpoint
from stoilo.executor.initdata import SlotInfo
from stoilo.executor.keeper import KeptRun
from stoilo.executor.shm import AppStatus
from stoilo.sandbox.process.progress import Progress

__all__ = ["Child", "Due", "Reckoning"]

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

        Args:
            now: monotonic, s.
            at_once: whether the client's period does not matter any more.
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
        self._cpu_time = max(self._cpu_time, total)
        return self._cpu_time

    def _fraction(self) -> float:
        """Return what the task told, or how much of its time it has used."""
        if self._told:
            return self._told
        if self._run is None or self._child is None:
            return 0.0
        limits: RunLimits = self._run.limits
        earlier = self._kept.cpu_s if self._kept else 0.0
        return min((self._child.cpu_s() + earlier) / limits.cpu_s, ALMOST)
