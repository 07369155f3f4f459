"""Runs results as a BOINC client would: a slot, the launcher in it, a result file out of it.

The whole frozen chain (launcher, verifier, flavor) judges and runs; this process lays out
the slot, holds the program through the runtime API (`process`), and judges its end by
BOINC's table (`layout`). It believes nothing of what comes back but its bounds. A slot
is kept while its result is unfinished, so that a task goes on from its checkpoint.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from stoilo.core.errors import InternalError
from stoilo.core.types import BOUNDS
from stoilo.executor.slot.layout import (
    LaunchFailedError,
    Program,
    check_exit,
    copy_in,
    lay_out,
    read_state,
)
from stoilo.executor.slot.process import SlotProcess, start_in_slot
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.boinc_slot import FINISH_FILE
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.verifier.installation import (
    HOME_NAME,
    disk_trouble,
    own_directory,
    replace_file,
)
from stoilo.executor.verifier.workunit import Work


class Executor:
    """Turns downloaded copies into result files; does nothing that it is not made to."""

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes.

        Raises:
            InternalError: this machine's own trouble; the copy may be tried again.
                ``STO-S008``: `cancel` or `close` ended it.
        """
        raise NotImplementedError

    def cancel(self, result: str) -> None:
        """Kill the run of a copy, from another thread; nothing when it does not run."""

    def close(self) -> None:
        """End every run and every jail, soon."""

    def suspend(self) -> None:
        """Hold every run, and those that begin."""

    def resume(self) -> None:
        """Let every run go on."""

    def progress(self) -> Mapping[str, AppStatus]:
        """Return what the runs say of themselves, by result name."""
        return {}

    def keep(self, results: Collection[str]) -> None:
        """Drop what is kept on the disk of all copies but these."""


class Run(Protocol):
    """One run, as its executor holds it."""

    def cancel(self) -> None:
        """End it."""

    def suspend(self) -> None:
        """Let it stand still."""

    def resume(self) -> None:
        """Let it go on."""


AnyRun = TypeVar("AnyRun", bound=Run)


class HoldingExecutor(Executor, Generic[AnyRun]):
    """An executor that holds its runs by result name, all of them or none. Thread-safe.

    Args:
        end: ends a run when the executor is closed.
    """

    def __init__(self, end: Callable[[AnyRun], object]) -> None:
        self._end = end
        self._lock = threading.Condition()
        self._held: dict[str, AnyRun | None] = {}
        self._unwanted: set[str] = set()
        self._suspended = False
        self._closed = False

    @contextmanager
    def hold(self, result: str) -> Iterator[None]:
        """Know `result` as running while the block lasts.

        Raises:
            InternalError: ``STO-S008`` after `close`.
        """
        with self._lock:
            if self._closed:
                raise InternalError(CANCELLED, "this executor is closed")
            self._held[result] = None
        try:
            yield
        finally:
            with self._lock:
                del self._held[result]
                self._unwanted.discard(result)

    def watch(self, result: str, run: AnyRun, *, wait: bool = False) -> None:
        """Take a run that begins; one that is unwanted is ended at once.

        `wait`: until runs may go on, for one that could end before it is suspended.
        """
        with self._lock:
            self._held[result] = run
            if wait:
                self._lock.wait_for(
                    lambda: (
                        not self._suspended or self._closed or result in self._unwanted
                    )
                )
            closed, suspended = self._closed, self._suspended
            unwanted = result in self._unwanted
        # It was cancelled while it was being prepared, when there was nothing to kill yet.
        if unwanted:
            run.cancel()
        elif closed:
            self._end(run)
        elif suspended:
            run.suspend()

    def running(self) -> dict[str, AnyRun]:
        """Return the runs that have begun."""
        with self._lock:
            return {name: run for name, run in self._held.items() if run is not None}

    def cancel(self, result: str) -> None:
        """End one run, also one that is still being prepared; others are unharmed."""
        with self._lock:
            if result not in self._held:
                return
            self._unwanted.add(result)
            run = self._held[result]
            self._lock.notify_all()
        if run is not None:
            run.cancel()

    def suspend(self) -> None:
        """Hold every run, and those that begin."""
        with self._lock:
            self._suspended = True
        for run in self.running().values():
            run.suspend()

    def resume(self) -> None:
        """Let every run go on."""
        with self._lock:
            self._suspended = False
            self._lock.notify_all()
        for run in self.running().values():
            run.resume()

    def close(self) -> None:
        """End every run, let none begin, end those being prepared when they do."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        for run in self.running().values():
            self._end(run)


log = logging.getLogger(__name__)

OPT_IN_FILE: Final = "optin.toml"
MAX_RESULT_BYTES: Final = BOUNDS.value_bytes + BOUNDS.result_header_bytes
CANCELLED: Final = "STO-S008"


class SlotExecutor(HoldingExecutor[SlotProcess]):
    """An `Executor` whose copies run under the launcher, each in a slot of its own.

    Its runs can be suspended, say how far they are, and survive restarts.

    Args:
        programs: returns the program of an app, checked and ready to be started.
        data: laid out like a BOINC data directory; `Work.files` lie in it.
        opt_in: the opt-in file of this volunteer; written where the verifier reads it.
        preferences: returns the project-specific preferences; they may only lower.

    Raises:
        TrustError: STO-F037 the home in `data` is open to others.
        InternalError: STO-X008 it cannot be made.
    """

    def __init__(
        self,
        programs: Callable[[str], Program],
        data: Path,
        opt_in: bytes,
        preferences: Callable[[], str] = str,
    ) -> None:
        super().__init__(SlotProcess.quit)
        self._programs = programs
        self._data = data.resolve()
        self._slots = self._data / "slots"
        self._preferences = preferences
        self._taken: dict[int, str] = {}
        self._slots_lock = threading.Lock()
        home = self._data / HOME_NAME
        own_directory(home)
        replace_file(home / OPT_IN_FILE, opt_in)

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`.

        Raises:
            PutOffError: STO-F048 the program wants to be started again later.
            LaunchFailedError: STO-F048 it failed.
            InternalError: STO-F048 it ended without a result and is to be started again,
                STO-S008 it was ended from here, STO-X008 the disk refuses.
        """
        program = self._programs(work.app)
        with self.hold(work.result), self._slot(work.result) as slot:
            try:
                if not (slot / FINISH_FILE).exists():  # else a former start was faster
                    self._run(slot, work, program)
                data = _take_result(slot)
            except LaunchFailedError:
                shutil.rmtree(slot, ignore_errors=True)
                raise
            shutil.rmtree(slot, ignore_errors=True)
            return data

    def progress(self) -> Mapping[str, AppStatus]:
        """Return what the runs say of themselves; see `Executor`."""
        return {name: process.status for name, process in self.running().items()}

    def keep(self, results: Collection[str]) -> None:
        """Drop the slots of all copies but these; see `Executor`."""
        # A slot in use is never removed, whatever the ledger says meanwhile.
        with self._slots_lock:
            taken = {str(number) for number in self._taken}
        for slot in self._kept():
            gone = copy_in(slot) not in {"", *results}
            if gone and slot.name not in taken:
                shutil.rmtree(slot, ignore_errors=True)

    def _run(self, slot: Path, work: Work, program: Program) -> None:
        """Start the program and return when it has finished, else raise."""
        cpu_s = read_state(slot).checkpoint_cpu_time
        lay_out(slot, work, program, preferences=self._preferences(), cpu_s=cpu_s)
        process = start_in_slot(slot, program.launcher)
        self.watch(work.result, process)
        code = process.wait()
        try:
            check_exit(slot, code)
        except InternalError as error:
            # Killed on request, it says nothing about the task.
            if process.ended_by_us:
                raise InternalError(CANCELLED, "the run was ended") from error
            raise
        finally:
            log.info("the launcher of %s ended with %d", work.result, code)

    @contextmanager
    def _slot(self, result: str) -> Iterator[Path]:
        """Yield the copy's own slot: the one it had before, else a new one."""
        with self._slots_lock:
            number = self._number(result)
            self._taken[number] = result
        slot = self._slots / str(number)
        try:
            # Left by a result that is over; nothing of it may reach the next one.
            if copy_in(slot) != result:
                shutil.rmtree(slot, ignore_errors=True)
            with disk_trouble("this machine cannot run a copy"):
                slot.mkdir(parents=True, exist_ok=True)
                yield slot
        finally:
            with self._slots_lock:
                del self._taken[number]

    def _number(self, result: str) -> int:
        """Return the number of the slot for a copy; others' are not touched."""
        kept = {int(slot.name): copy_in(slot) for slot in self._kept()}
        own = [number for number, name in kept.items() if name == result]
        if own:
            return own[0]
        used = {number for number, name in kept.items() if name} | set(self._taken)
        return next(n for n in range(len(used) + 1) if n not in used)

    def _kept(self) -> list[Path]:
        return [path for path in self._slots.glob("*") if path.name.isdecimal()]


def _take_result(slot: Path) -> bytes:
    with (slot / workunit.RESULT).open("rb") as file:
        data = file.read(MAX_RESULT_BYTES + 1)
    if len(data) > MAX_RESULT_BYTES:
        raise LaunchFailedError(-131, "the result is larger than any may be")
    return data
