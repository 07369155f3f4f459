"""Runs copies as a BOINC client would: a slot, the launcher in it, a result file out of it.

The whole frozen chain (launcher, verifier, flavor) judges and runs; this process only lays
out the slot and waits. It believes nothing of what comes back but its bounds.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.plaintext import show_plainly
from stoilo.executor import workdir
from stoilo.executor.home import HOME_NAME, own_directory
from stoilo.executor.optin import OptIn
from stoilo.executor.optinfile import render_opt_in
from stoilo.executor.runs import Runs
from stoilo.executor.slot import (
    FINISH_FILE,
    INIT_FILE,
    TEMPORARY_EXIT_FILE,
    render_soft_link,
)
from stoilo.executor.work import Work
from stoilo.executor.xmltext import escape
from stoilo.sandbox.libc import kill_with_parent

__all__ = ["VERIFIER_ARCHIVE", "Program", "ProgramSource", "SlotExecutor"]

log = logging.getLogger(__name__)

VERIFIER_ARCHIVE: Final = "stoilo-verifier.tar"
"""Open name under which the launcher finds the verifier."""

OPT_IN_FILE: Final = "optin.toml"
MAX_RESULT_BYTES: Final = BOUNDS.value_bytes + BOUNDS.result_header_bytes
MAX_WORDS: Final = 4096
_STDERR: Final = "stderr.txt"


@dataclass(frozen=True, slots=True)
class Program:
    """The two files of an app version, as the project signed them for BOINC.

    Attributes:
        launcher: what is started.
        verifier: the archive that it unpacks once.
    """

    launcher: Path
    verifier: Path

    @classmethod
    def of(cls, launcher: Path) -> Program:
        """Return the program of `launcher`, its archive beside it.

        Raises:
            UsageError: STO-U004 one of the two is no file.
        """
        launcher = launcher.resolve()
        beside = (
            launcher.with_name(VERIFIER_ARCHIVE),
            launcher.with_name(f"{launcher.name}.tar"),
            launcher.parent.parent / "verifier" / f"{launcher.name}.tar",
        )
        verifier = next((path for path in beside if path.is_file()), None)
        if not launcher.is_file() or verifier is None:
            raise UsageError(
                "STO-U004",
                f"{launcher.name} or the verifier's archive beside it cannot be read",
                hint=f"put {VERIFIER_ARCHIVE} beside the launcher",
            )
        return cls(launcher, verifier)

    def ready(self, app: str) -> Program:
        """Return itself: it serves every app; see `ProgramSource`."""
        del app
        return self


class ProgramSource(Protocol):
    """Where the program of an app comes from."""

    def ready(self, app: str) -> Program:
        """Return the program of `app`, checked and ready to be started.

        Raises:
            TrustError: there is none that may be started.
            UnreachableError: it cannot be fetched now.
            InternalError: the disk refuses.
        """
        ...


class _Started:
    """A launcher that runs; ends with all that it started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def cancel(self) -> None:
        """Kill its process group, from any thread; the jails die with it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class SlotExecutor:
    """An `Executor` whose copies run under the launcher, each in a slot of its own.

    Args:
        programs: launcher and verifier of each app; a `Program` serves all.
        data: laid out like a BOINC data directory; `Work.files` lie in it.
        opt_in: what this volunteer allows; written where the verifier reads it.

    Raises:
        TrustError: STO-F037 the home in `data` is open to others.
        InternalError: STO-X008 it cannot be made.
    """

    def __init__(self, programs: ProgramSource, data: Path, opt_in: OptIn) -> None:
        self._programs = programs
        self._data = data.resolve()
        self._runs = Runs()
        self._taken: set[int] = set()
        self._lock = threading.Lock()
        home = self._data / HOME_NAME
        own_directory(home)
        _write_opt_in(home / OPT_IN_FILE, opt_in)

    def execute(self, work: Work) -> bytes:
        """Return the result file's bytes; see `Executor`.

        Raises:
            InternalError: STO-F048 the launcher ended without a result, STO-S008 it was
                cancelled, STO-X008 the disk refuses.
        """
        program = self._programs.ready(work.app)
        with self._runs.hold(work.result), self._slot() as slot:
            try:
                self._lay_out(slot, work, program)
                process = self._start(slot, program)
            except OSError as error:
                raise _disk(error) from error
            started = _Started(process)
            self._runs.watch(work.result, started)
            try:
                code = process.wait()
            finally:
                started.cancel()
                process.wait()
            if code == -signal.SIGKILL:
                raise InternalError("STO-S008", "the run was ended")
            return _take_result(slot, code)

    def cancel(self, result: str) -> None:
        """Kill the run of a copy; see `Executor`."""
        self._runs.cancel(result)

    def close(self) -> None:
        """End every run."""
        self._runs.close()

    @contextmanager
    def _slot(self) -> Iterator[Path]:
        """Yield an empty slot directory that nobody else uses."""
        with self._lock:
            number = next(
                n for n in range(len(self._taken) + 1) if n not in self._taken
            )
            self._taken.add(number)
        slot = self._data / "slots" / str(number)
        try:
            shutil.rmtree(slot, ignore_errors=True)
            try:
                slot.mkdir(parents=True)
            except OSError as error:
                raise _disk(error) from error
            yield slot
        finally:
            shutil.rmtree(slot, ignore_errors=True)
            with self._lock:
                self._taken.discard(number)

    def _lay_out(self, slot: Path, work: Work, program: Program) -> None:
        """Write what a BOINC client writes before it starts an app."""
        (slot / INIT_FILE).write_text(
            "<app_init_data>\n"
            f"<app_name>{escape(work.app)}</app_name>\n"
            f"<wu_name>{escape(work.workunit)}</wu_name>\n"
            f"<result_name>{escape(work.result)}</result_name>\n"
            "</app_init_data>\n",
            "utf-8",
        )
        files = (*work.files, (VERIFIER_ARCHIVE, program.verifier))
        for name, path in files:
            if workdir.open_name_bound(name) or name == VERIFIER_ARCHIVE:
                target = os.path.relpath(path.resolve(), slot)
                (slot / name).write_bytes(render_soft_link(target))

    def _start(self, slot: Path, program: Program) -> subprocess.Popen[bytes]:
        """Start the launcher as a BOINC client does, in a session of its own."""
        with (slot / _STDERR).open("ab") as err:
            return subprocess.Popen(
                [str(program.launcher)],
                cwd=slot,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
                preexec_fn=kill_with_parent,  # noqa: PLW1509 - one call into libc
            )


def _take_result(slot: Path, code: int) -> bytes:
    """Return the result that a launcher left behind, or say why there is none."""
    if code == 0 and (slot / FINISH_FILE).exists():
        with (slot / workdir.RESULT).open("rb") as file:
            data = file.read(MAX_RESULT_BYTES + 1)
        if len(data) <= MAX_RESULT_BYTES:
            return data
        raise InternalError("STO-F048", "the result is larger than any may be")
    reason = _last_words(slot / TEMPORARY_EXIT_FILE) or _last_words(slot / _STDERR)
    log.warning("the launcher ended with %d: %s", code, reason or "no words")
    raise InternalError(
        "STO-F048", f"the launcher ended with {code}: {reason or 'it said nothing'}"
    )


def _last_words(path: Path) -> str:
    """Return the last line of a file in the slot, bounded; empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_WORDS))
            lines = file.read(MAX_WORDS).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return show_plainly(said[-1])[:400] if said else ""


def _write_opt_in(path: Path, opt_in: OptIn) -> None:
    """Write what the verifier in this data directory may run, for its owner only."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(render_opt_in(opt_in))
        part.replace(path)
    except OSError as error:
        raise _disk(error) from error


def _disk(error: OSError) -> InternalError:
    """Return ``STO-X008``."""
    return InternalError(
        "STO-X008", f"this machine cannot run a copy (errno {error.errno})"
    )
