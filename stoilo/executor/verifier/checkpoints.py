"""The checkpoint of one task: its last yielded state, as a file of the slot; its account.

    {"format":"stoilo-checkpoint/1", …} LF <64 hex digits of a MAC> LF <state>

A client starts an interrupted task again in the same slot, and the task goes on from here.
The state is what the jail gave, never decoded outside of it. A server fills slots too (a
workunit's files may bear any name), and a state that it planted would change a task behind
the admission's back; so the file counts only under a MAC with a key of this computer's own,
and only for the admission that it names. Whatever is wrong with it, the task begins again.
"""

from __future__ import annotations

import dataclasses
import hmac
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.boinc_slot import (
    SlotInfo,
    open_plain,
    write_in_slot,
)
from stoilo.executor.verifier.installation import replace_file
from stoilo.sandbox.process.channel import MOST_STEPS, Progress, largest_state

log = logging.getLogger(__name__)

CHECKPOINT_FILE: Final = "stoilo_checkpoint"
KEY_FILE: Final = "checkpoint.key"
KEY_BYTES: Final = 32
MAX_HEADER_BYTES: Final = 1024
_MAC_CHARS = 64


class Checkpoint(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="format",
    tag="stoilo-checkpoint/1",
):
    """From where a task goes on; the file's first line is all of it but the state."""

    admission: str  # digest of the admission under which it runs
    step: int  # how many states it has yielded
    state: bytes = b""  # the last of them, encoded; the jail's, hostile
    cpu_s: float = 0.0  # processor time of the jailed child up to it, s
    wall_s: float = 0.0  # elapsed time of the runs up to it, s
    fraction: float = 0.0  # how far the task said it was, 0 to 1

    def limits_left(self, limits: RunLimits) -> RunLimits:
        """Return what is left of a task's limits, at least a second of each time."""
        return dataclasses.replace(
            limits,
            # At least a second: with none left the run would end before it could say
            # why.
            cpu_s=max(1, math.floor(limits.cpu_s - self.cpu_s)),
            wall_s=max(1, math.floor(limits.wall_s - self.wall_s)),
        )

    def fits(self, admission: str, limits: RunLimits) -> bool:
        """Whether it can be of a run under this admission and these limits."""
        return (
            self.admission == admission
            and 0 < self.step <= MOST_STEPS
            and 0 < len(self.state) <= largest_state(limits.result_bytes)
            and 0 <= self.cpu_s < limits.cpu_s + 1
            and 0 <= self.wall_s < limits.wall_s + 1
            and 0 <= self.fraction <= 1
        )


def render_checkpoint(checkpoint: Checkpoint, key: bytes) -> bytes:
    """Return the file's bytes."""
    line = msgspec.json.encode(msgspec.structs.replace(checkpoint, state=b""))
    mac = _mac(key, line, checkpoint.state)
    return b"\n".join((line, mac, checkpoint.state))


def parse_checkpoint(data: bytes, key: bytes) -> Checkpoint | None:
    """Return the checkpoint in hostile bytes, None unless `key` vouches for all of it."""
    line, newline, rest = data[: MAX_HEADER_BYTES + 1].partition(b"\n")
    start = len(line) + 1
    mac, state = data[start : start + _MAC_CHARS], data[start + _MAC_CHARS + 1 :]
    if not newline or rest[_MAC_CHARS : _MAC_CHARS + 1] != b"\n":
        return None
    # Before anything of the line is parsed: a server can put a file of this name here.
    if not hmac.compare_digest(mac, _mac(key, line, state)):
        return None
    try:
        known = msgspec.json.decode(line, type=Checkpoint)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return msgspec.structs.replace(known, state=state)


class CheckpointFile:
    """The checkpoint in one slot.

    Args:
        slot: the slot's directory.
        state: this host's own directory, where the key lies; made if needed.
        most_bytes: what the workunit may take of the disk; larger ones are not written.
    """

    def __init__(self, slot: Path, state: Path, most_bytes: int | None = None) -> None:
        self._slot = slot
        self._state = state
        self._most = most_bytes

    def load(self, admission: str, limits: RunLimits) -> Checkpoint | None:
        """Return what to go on from, None to begin.

        Raises:
            InternalError: STO-X008 the key cannot be read.
        """
        most = MAX_HEADER_BYTES + _MAC_CHARS + 2 + largest_state(limits.result_bytes)
        path = self._slot / CHECKPOINT_FILE
        if not os.path.lexists(path):
            return None
        try:
            with open_plain(path) as file:
                data = file.read(most + 1)
        except (OSError, TrustError):
            data = b""
        checkpoint = parse_checkpoint(data, self._key()) if len(data) <= most else None
        if checkpoint is None or not checkpoint.fits(admission, limits):
            log.warning("the checkpoint is damaged or of another task: not used")
            return None
        return checkpoint

    def save(self, checkpoint: Checkpoint) -> bool:
        """Write it, durably; False where it would take too much of the disk.

        Half of what the workunit may use is left for the result.

        Raises:
            InternalError: STO-X008 the disk refuses.
        """
        data = render_checkpoint(checkpoint, self._key())
        # BOINC aborts a task that exceeds its disk bound, and the result has to fit
        # too.
        if self._most is not None and 2 * len(data) > self._most:
            return False
        part = self._slot / "checkpoint.part"
        write_in_slot(part, self._slot / CHECKPOINT_FILE, data)
        return True

    def forget(self) -> None:
        """Remove it, so that the next start begins from the beginning."""
        try:
            (self._slot / CHECKPOINT_FILE).unlink(missing_ok=True)
        except OSError:
            pass  # a directory of that name is read as damaged, too

    def _key(self) -> bytes:
        path = self._state / KEY_FILE
        try:
            with open_plain(path) as file:
                key = file.read(KEY_BYTES + 1)
        except (OSError, TrustError):
            key = b""
        # A lost or cut key costs running tasks their checkpoints, nothing else.
        if len(key) != KEY_BYTES:
            key = os.urandom(KEY_BYTES)
            replace_file(path, key)
        return key


def _mac(key: bytes, line: bytes, state: bytes) -> bytes:
    # Without the length, bytes could move between header and state under one MAC.
    length = len(line).to_bytes(8, "big")
    return hmac.digest(key, b"".join((length, line, state)), "sha256").hex().encode()


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A verified task that is about to run."""

    admission: str  # digest of its admission
    limits: RunLimits  # of the whole task, however often it is interrupted


@dataclass(frozen=True, slots=True)
class AppStatus:
    """What an application tells about itself."""

    # processor time of the task, earlier starts included, s
    current_cpu_time: float = 0.0
    checkpoint_cpu_time: float = 0.0  # the same at the last checkpoint, s
    fraction_done: float = 0.0  # 0 to 1


def render_status(status: AppStatus) -> bytes:
    """Return the status in the order and form of BOINC's own library."""
    words = (
        f"<current_cpu_time>{status.current_cpu_time:e}</current_cpu_time>\n"
        f"<checkpoint_cpu_time>{status.checkpoint_cpu_time:e}</checkpoint_cpu_time>\n"
        f"<fraction_done>{status.fraction_done:e}</fraction_done>\n"
    )
    return words.encode()


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
