"""The checkpoint of one task: its last yielded state, as a file of the slot.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.limits import RunLimits
from stoilo.executor.verifier.boinc_slot import open_plain, write_in_slot
from stoilo.executor.verifier.installation import replace_file
from stoilo.sandbox.process.channel import MOST_STEPS, largest_state

log = logging.getLogger(__name__)

CHECKPOINT_FILE: Final = "stoilo_checkpoint"
KEY_FILE: Final = "checkpoint.key"
KEY_BYTES: Final = 32
MAX_HEADER_BYTES: Final = 1024
_MAC_CHARS = 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """From where a task goes on."""

    admission: str  # digest of the admission under which it runs
    step: int  # how many states it has yielded
    state: bytes  # the last of them, encoded; the jail's, hostile
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


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of the file."""

    format: Literal["stoilo-checkpoint/1"]
    admission: str
    step: int
    cpu_s: float
    wall_s: float
    fraction: float


def render_checkpoint(checkpoint: Checkpoint, key: bytes) -> bytes:
    """Return the file's bytes."""
    line = msgspec.json.encode(
        _Header(
            format="stoilo-checkpoint/1",
            admission=checkpoint.admission,
            step=checkpoint.step,
            cpu_s=checkpoint.cpu_s,
            wall_s=checkpoint.wall_s,
            fraction=checkpoint.fraction,
        )
    )
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
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return Checkpoint(
        header.admission,
        header.step,
        state,
        header.cpu_s,
        header.wall_s,
        header.fraction,
    )


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
