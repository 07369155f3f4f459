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
from typing import Final, Protocol, runtime_checkable

from stoilo.core.errors import InternalError
from stoilo.core.limits import BOUNDS
from stoilo.executor.slot.process import (
    ExitKind,
    Program,
    ProgramSource,
    SlotExit,
    SlotProcess,
    SlotTask,
    copy_in,
    judge_exit,
    lay_out,
    read_state,
    start_in_slot,
)
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.boinc_shm import Control
from stoilo.executor.verifier.boinc_slot import FINISH_FILE
from stoilo.executor.verifier.execution import ActiveRuns
from stoilo.executor.verifier.installation import HOME_NAME, own_directory, replace_file
from stoilo.executor.verifier.workunit import Work


@runtime_checkable
class SuspendableExecutor(Protocol):
    """An executor whose runs can be held, watched, and go on after a restart."""

    def suspend(self) -> None:
        """Hold every run, and those that begin."""
        ...

    def resume(self) -> None:
        """Let every run go on."""
        ...

    def fractions(self) -> Mapping[str, float]:
        """Return how far the runs say they are, 0 to 1, by result name."""
        ...

    def keep(self, results: Collection[str]) -> None:
        """Drop what is kept on the disk of all copies but these."""
        ...


class PutOffError(InternalError):
    """The program asks to be started again later (BOINC's temporary exit).

    Attributes:
        delay_s: not before that many s.
    """

    def __init__(self, delay_s: float, reason: str) -> None:
        super().__init__("STO-F048", f"put off for {delay_s:.0f} s: {reason}")
        self.delay_s = delay_s


class LaunchFailedError(InternalError):
    """The program ended in a way that BOINC counts as the task's failure.

    Attributes:
        exit_status: as it is reported.
    """

    def __init__(self, exit_status: int, message: str) -> None:
        super().__init__("STO-F048", message)
        self.exit_status = exit_status


log = logging.getLogger(__name__)

OPT_IN_FILE: Final = "optin.toml"
MAX_RESULT_BYTES: Final = BOUNDS.value_bytes + BOUNDS.result_header_bytes
QUIT_S: Final = 30.0
"""How long a program may take to write its state down, s."""

ABORT_S: Final = 5.0
CANCELLED: Final = "STO-S008"


class SlotExecutor:
    """An `Executor` whose copies run under the launcher, each in a slot of its own.

    Its runs can be suspended, say how far they are, and survive restarts.

    Args:
        programs: launcher and verifier of each app; a `Program` serves all.
        data: laid out like a BOINC data directory; `Work.files` lie in it.
        opt_in: the opt-in file of this volunteer; written where the verifier reads it.
        preferences: returns the project-specific preferences; they may only lower.

    Raises:
        TrustError: STO-F037 the home in `data` is open to others.
        InternalError: STO-X008 it cannot be made.
    """

    def __init__(
        self,
        programs: ProgramSource,
        data: Path,
        opt_in: bytes,
        preferences: Callable[[], str] = str,
    ) -> None:
        self._programs = programs
        self._data = data.resolve()
        self._slots = self._data / "slots"
        self._preferences = preferences
        self._runs = ActiveRuns()
        self._taken: dict[int, str] = {}
        self._started: dict[str, SlotProcess] = {}
        self._suspended = False
        self._closing = False
        self._lock = threading.Lock()
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
        program = self._programs.ready(work.app)
        with self._runs.hold(work.result), self._slot(work.result) as slot:
            try:
                if not (slot / FINISH_FILE).exists():  # else a former start was faster
                    ended = self._run(slot, work, program)
                    _raise_unless_finished(ended)
                data = _take_result(slot)
            except OSError as error:
                raise _disk(error) from error
            except LaunchFailedError:
                shutil.rmtree(slot, ignore_errors=True)
                raise
            shutil.rmtree(slot, ignore_errors=True)
            return data

    def cancel(self, result: str) -> None:
        """Abort the run of a copy; see `Executor`."""
        self._runs.cancel(result)

    def close(self) -> None:
        """Have every run write its state down and end; kill those that do not."""
        with self._lock:
            self._closing = True
            running = list(self._started.values())
        for process in running:
            process.ask(Control.QUIT, patience_s=QUIT_S)

    def suspend(self) -> None:
        """Hold every run; see `SuspendableExecutor`."""
        self._hold(suspended=True)

    def resume(self) -> None:
        """Let every run go on; see `SuspendableExecutor`."""
        self._hold(suspended=False)

    def fractions(self) -> Mapping[str, float]:
        """Return how far the runs say they are; see `SuspendableExecutor`."""
        with self._lock:
            running = dict(self._started)
        return {name: process.status.fraction_done for name, process in running.items()}

    def keep(self, results: Collection[str]) -> None:
        """Drop the slots of all copies but these; see `SuspendableExecutor`."""
        # A slot in use is never removed, whatever the ledger says meanwhile.
        with self._lock:
            taken = {str(number) for number in self._taken}
        for slot in self._kept():
            gone = copy_in(slot) not in {"", *results}
            if gone and slot.name not in taken:
                shutil.rmtree(slot, ignore_errors=True)

    def _hold(self, *, suspended: bool) -> None:
        with self._lock:
            self._suspended = suspended
            running = list(self._started.values())
        for process in running:
            process.ask(Control.SUSPEND if suspended else Control.RESUME)

    def _run(self, slot: Path, work: Work, program: Program) -> SlotExit:
        state = read_state(slot)
        task = SlotTask(
            work, program, self._preferences(), cpu_s=state.checkpoint_cpu_time
        )
        lay_out(slot, task)
        process = start_in_slot(slot, program.launcher)
        with self._lock:
            self._started[work.result] = process
            closing, suspended = self._closing, self._suspended
        try:
            self._runs.watch(
                work.result, lambda: process.ask(Control.ABORT, patience_s=ABORT_S)
            )
            if closing:
                process.ask(Control.QUIT, patience_s=QUIT_S)
            elif suspended:
                process.ask(Control.SUSPEND)
            code = process.wait()
        finally:
            with self._lock:
                del self._started[work.result]
        ended = judge_exit(slot, code)
        # Killed on request, it says nothing about the task.
        if process.ended_by_us and ended.ending is not ExitKind.FINISHED:
            raise InternalError(CANCELLED, "the run was ended")
        log.info("the launcher of %s ended with %d", work.result, code)
        return ended

    @contextmanager
    def _slot(self, result: str) -> Iterator[Path]:
        """Yield the copy's own slot: the one it had before, else a new one."""
        with self._lock:
            if self._closing:
                raise InternalError(CANCELLED, "this executor is closed")
            number = self._number(result)
            self._taken[number] = result
        slot = self._slots / str(number)
        try:
            # Left by a result that is over; nothing of it may reach the next one.
            if copy_in(slot) != result:
                shutil.rmtree(slot, ignore_errors=True)
            slot.mkdir(parents=True, exist_ok=True)
            yield slot
        except OSError as error:
            raise _disk(error) from error
        finally:
            with self._lock:
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


def _raise_unless_finished(ended: SlotExit) -> None:
    words = ended.words or "it said nothing"
    match ended.ending:
        case ExitKind.PUT_OFF:
            raise PutOffError(ended.delay_s, words)
        case ExitKind.FAILED:
            raise LaunchFailedError(
                ended.exit_status,
                f"the launcher ended with {ended.exit_status}: {words}",
            )
        case ExitKind.RESTART:
            raise InternalError(
                "STO-F048", f"the launcher ended without a result: {words}"
            )
        case ExitKind.FINISHED:
            return


def _take_result(slot: Path) -> bytes:
    with (slot / workunit.RESULT).open("rb") as file:
        data = file.read(MAX_RESULT_BYTES + 1)
    if len(data) > MAX_RESULT_BYTES:
        raise LaunchFailedError(-131, "the result is larger than any may be")
    return data


def _disk(error: OSError) -> InternalError:
    return InternalError(
        "STO-X008", f"this machine cannot run a copy (errno {error.errno})"
    )
