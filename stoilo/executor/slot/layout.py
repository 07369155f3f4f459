"""The files of a slot: what a client lays out before a start, and what its end left there.

A program's end counts by BOINC's table (`check_exit`); of what the program wrote nothing is
believed but its bounds.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.core.boinc.xml import XmlBounds, element, parse_xml
from stoilo.core.errors import InternalError, TrustError, UsageError, show_plainly
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.boinc_session import MMAP_FILE, SEGMENT_BYTES
from stoilo.executor.verifier.boinc_slot import (
    FINISH_FILE,
    INIT_FILE,
    MAX_INIT_BYTES,
    TEMPORARY_EXIT_FILE,
    parse_init_data,
    render_soft_link,
)
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.verifier.workunit import Work

VERIFIER_ARCHIVE: Final = "stoilo-verifier.tar"
"""Open name under which the launcher finds the verifier."""


@dataclass(frozen=True, slots=True)
class Program:
    """The two files of an app version, as the project signed them for BOINC."""

    launcher: Path  # what is started
    verifier: Path  # the archive that it unpacks once

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


STATE_FILE: Final = "boinc_task_state.xml"
STDERR_FILE: Final = "stderr.txt"
CHECKPOINT_PERIOD_S: Final = 60.0
CLIENT_VERSION: Final = (7, 20, 5)
STATE_BOUNDS: Final = XmlBounds(document_bytes=4096, elements=16)
MAX_WORDS: Final = 4096
MOST_DELAY_S: Final = 24 * 3600.0
RESTARTED: Final = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM}
)
"""Signals after which BOINC starts a task again; any other is the task's failure."""

_DELAY = re.compile(r"[0-9]{1,9}")


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


def lay_out(
    slot: Path,
    work: Work,
    program: Program,
    *,
    preferences: str = "",
    cpu_s: float = 0.0,
) -> None:
    """Write what a client writes before it starts an app; what a task kept stays.

    `preferences`: the project-specific ones, XML text; they may only lower. `cpu_s`:
    processor time up to the last checkpoint.

    Raises:
        OSError: the disk refuses.
    """
    (slot / INIT_FILE).write_text(
        _render_init_data(slot, work, preferences, cpu_s), "utf-8"
    )
    part = slot / f"{MMAP_FILE}.part"
    part.write_bytes(bytes(SEGMENT_BYTES))
    part.chmod(0o600)
    part.replace(slot / MMAP_FILE)
    (slot / TEMPORARY_EXIT_FILE).unlink(missing_ok=True)
    files = (*work.files, (VERIFIER_ARCHIVE, program.verifier))
    for name, path in files:
        known = workunit.open_name_bound(name) or name == VERIFIER_ARCHIVE
        if known and isinstance(path, Path):
            target = os.path.relpath(path.resolve(), slot)
            (slot / name).write_bytes(render_soft_link(target))


def copy_in(slot: Path) -> str:
    """Return the result name of the copy that a slot is kept for, "" for none."""
    try:
        with (slot / INIT_FILE).open("rb") as file:
            return parse_init_data(file.read(MAX_INIT_BYTES)).result
    except (OSError, TrustError):
        return ""


def read_state(slot: Path) -> AppStatus:
    """Return the last checkpoint noted in a slot; zeros without one."""
    try:
        with (slot / STATE_FILE).open("rb") as file:
            root = parse_xml(file.read(STATE_BOUNDS.document_bytes + 1), STATE_BOUNDS)
            cpu = max(0.0, root.number("checkpoint_cpu_time"))
            done = min(1.0, max(0.0, root.number("fraction_done")))
    except (OSError, TrustError):
        return AppStatus()
    return AppStatus(cpu, cpu, done)


def write_state(slot: Path, status: AppStatus) -> None:
    """Note a checkpoint, as BOINC's client does; a full disk costs only the note."""
    text = element(
        "active_task",
        checkpoint_cpu_time=f"{status.checkpoint_cpu_time:f}",
        fraction_done=f"{status.fraction_done:f}",
    )
    part = slot / f"{STATE_FILE}.part"
    try:
        part.write_text(text, "ascii")
        part.replace(slot / STATE_FILE)
    except OSError:
        return


def check_exit(slot: Path, code: int) -> None:
    """Return when a program has finished; its end counts by BOINC's table.

    Raises:
        PutOffError: STO-F048 it wants to be started again later.
        LaunchFailedError: STO-F048 it failed.
        InternalError: STO-F048 it is to be started again.
    """
    if code == 0 and (slot / FINISH_FILE).exists():
        return
    words = _last_words(slot / STDERR_FILE) or "it said nothing"
    if code >= 0 and (slot / TEMPORARY_EXIT_FILE).exists():
        delay_s, reason = _temporary_exit(slot / TEMPORARY_EXIT_FILE)
        raise PutOffError(delay_s, reason or words)
    if code == 0 or -code in RESTARTED:
        raise InternalError("STO-F048", f"the launcher ended without a result: {words}")
    raise LaunchFailedError(code, f"the launcher ended with {code}: {words}")


def _render_init_data(slot: Path, work: Work, preferences: str, cpu_s: float) -> str:
    """Return ``init_data.xml``; it names neither account key, user nor host."""
    major, minor, release = CLIENT_VERSION
    wishes = f"<project_preferences>{preferences}</project_preferences>"
    return element(
        "app_init_data",
        wishes if preferences else "",
        major_version=major,
        minor_version=minor,
        release=release,
        app_name=work.app,
        wu_name=work.workunit,
        result_name=work.result,
        shm_key=-1,
        slot=slot.name,
        client_pid=os.getpid(),
        wu_cpu_time=f"{cpu_s:f}",
        checkpoint_period=f"{CHECKPOINT_PERIOD_S:f}",
        fraction_done_start=0,
        fraction_done_end=1,
        ncpus=1,
    )


def _temporary_exit(path: Path) -> tuple[float, str]:
    """Return delay, s, and reason of a temporary exit; the file is the program's."""
    first, _, rest = _read_words(path).partition("\n")
    match = _DELAY.match(first.lstrip(" "))
    delay = min(float(match[0]) if match else 0.0, MOST_DELAY_S)
    return delay, show_plainly(rest.split("\n")[0].strip())[:400]


def _last_words(path: Path) -> str:
    """Return the last line of a file in the slot, bounded; empty without one."""
    said = [line.strip() for line in _read_words(path).split("\n") if line.strip()]
    return show_plainly(said[-1])[:400] if said else ""


def _read_words(path: Path) -> str:
    """Return the end of a text file of the slot, empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_WORDS))
            return file.read(MAX_WORDS).decode("utf-8", "replace")
    except OSError:
        return ""
