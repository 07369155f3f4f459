"""What a volunteer shows of itself, and how a person steers it while it runs.

`standing.json` is replaced about once a second and never flushed: it is shown, nothing more.
`control.json` (``{"suspended": false, "updates": 3}``) is a person's wish, written durably.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from stoilo.executor.volunteer.ledger import (
    NO_HOST,
    HostRecord,
    Phase,
    ResultRecord,
    load_record,
    read_memory,
    recall,
    save_record,
)

CONTROL_FILE: Final = "control.json"


class Control(msgspec.Struct, frozen=True):
    """What the person said last."""

    suspended: bool = False  # nothing shall run
    updates: int = 0  # how often a call to the project was asked for


def read_control(directory: Path) -> Control:
    """Return what is asked of the volunteer in `directory`; raises ``STO-X008``."""
    return load_record(directory / CONTROL_FILE, Control, Control())


def write_control(directory: Path, control: Control) -> None:
    """Ask something of the volunteer in `directory`; raises ``STO-X008``."""
    save_record(directory / CONTROL_FILE, control)


NAME: Final = "standing.json"
BEGAN: Final = 18  # of the fields after the state, see proc_pid_stat(5)
EVERY_S: Final = 1.0
MOST_COPIES: Final = 10_000


class LiveStatus(msgspec.Struct, frozen=True):
    """What a running volunteer says of itself."""

    pid: int  # its process
    started: int  # when that process began, clock ticks since boot: pids come again
    at: float  # when this was written, Unix seconds
    last_contact: float = 0.0  # of the project's last answer, Unix seconds; 0 for never
    last_error: str = ""  # what went wrong last, "" for nothing yet
    last_error_at: float = 0.0  # when that was, Unix seconds
    next_call_s: float = 0.0  # the next call is due in that many s from `at`
    # how far running copies are, 0 to 1, where that is known
    fractions: dict[str, float] = {}
    running: tuple[str, ...] = ()  # names of the copies that run now


NOTHING: Final = LiveStatus(pid=0, started=0, at=0.0)
"""Before anything was said."""


class CopyStanding(msgspec.Struct, frozen=True):
    """One copy: its names, how far it is, when it has to be back (Unix seconds)."""

    result: str
    workunit: str
    app: str
    phase: Phase
    running: bool
    fraction_done: float | None
    deadline: int
    code: str


class VolunteerStatus(msgspec.Struct, frozen=True):
    """One volunteer as a person sees it; `user` is the account's name and credit."""

    project: str
    host_id: int
    running: bool
    suspended: bool
    copies: tuple[CopyStanding, ...]
    last_contact: float
    last_error: str
    last_error_at: float
    next_call_at: float
    account: str
    total_credit: float
    host_credit: float
    messages: tuple[str, ...]


class StatusFile:
    """The running volunteer's side."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._written = 0.0
        self._started = _began(os.getpid()) or 0
        self._live = recall(directory / NAME, LiveStatus, NOTHING)

    def note_answer(self) -> None:
        """Note that the project answered."""
        self._live = msgspec.structs.replace(self._live, last_contact=time.time())

    def note_trouble(self, words: object) -> None:
        """Note what went wrong."""
        self._live = msgspec.structs.replace(
            self._live, last_error=str(words)[:500], last_error_at=time.time()
        )

    def write(
        self,
        *,
        next_call_s: float,
        running: tuple[str, ...],
        fractions: Mapping[str, float],
    ) -> None:
        """Write it down, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._written < EVERY_S:
            return
        self._written = now
        self._replace(
            pid=os.getpid(),
            started=self._started,
            next_call_s=max(0.0, next_call_s),
            fractions=dict(fractions),
            running=running,
        )

    def leave(self) -> None:
        """Note that nothing runs any more."""
        self._replace(pid=0, started=0, next_call_s=0.0, fractions={}, running=())

    def _replace(self, **now: object) -> None:
        live = msgspec.structs.replace(self._live, at=time.time(), **now)
        part = self._path.with_name(f"{NAME}.part")
        try:
            part.write_bytes(msgspec.json.encode(live))
            part.replace(self._path)
        except OSError:  # a full disk: it is shown, nothing more
            return


def read_status(directory: Path) -> VolunteerStatus:
    """Return how the volunteer with the project directory `directory` stands.

    Raises:
        InternalError: STO-X008 a file there cannot be read.
    """
    host = load_record(directory / "host.json", HostRecord, NO_HOST)
    standing = recall(directory / NAME, LiveStatus, NOTHING)
    memory = read_memory(directory)
    alive = bool(standing.pid) and _began(standing.pid) == standing.started
    user = memory.user
    places = sorted((directory / "copies").glob("*/copy.json"))[:MOST_COPIES]
    gone = ResultRecord("", "", "", 0, (), "", "", 0)
    copies = [load_record(path, ResultRecord, gone) for path in places]
    shown = [_copy(copy, standing, alive=alive) for copy in copies if copy.result]
    return VolunteerStatus(
        project=host.project,
        host_id=host.host_id,
        running=alive,
        suspended=read_control(directory).suspended,
        copies=tuple(sorted(shown, key=lambda copy: copy.deadline)),
        last_contact=standing.last_contact,
        last_error=standing.last_error,
        last_error_at=standing.last_error_at,
        next_call_at=standing.at + standing.next_call_s if alive else 0.0,
        account=user.name if user else "",
        total_credit=user.total_credit if user else 0.0,
        host_credit=user.host_total_credit if user else 0.0,
        messages=memory.messages,
    )


def _copy(copy: ResultRecord, standing: LiveStatus, *, alive: bool) -> CopyStanding:
    running = alive and copy.result in standing.running
    done = standing.fractions.get(copy.result) if running else None
    now = {"running": running, "fraction_done": done}
    return msgspec.convert(msgspec.structs.asdict(copy) | now, CopyStanding)


def _began(pid: int) -> int | None:
    """Return when a process began, clock ticks since boot; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(rest[BEGAN])
