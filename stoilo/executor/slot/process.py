"""A program that runs in a slot, held as BOINC's client holds it.

One thread waits for its end and keeps the channels going: a heartbeat each second, one
control message until it has been read, the status as it comes. Other threads ask: suspend,
resume, quit, abort. Who does not listen is killed after BOINC's own patience.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from stoilo.executor.slot.layout import STDERR_FILE, write_state
from stoilo.executor.verifier.boinc_session import (
    HEARTBEAT,
    MMAP_FILE,
    Channel,
    Control,
    Segment,
    open_segment,
)
from stoilo.executor.verifier.boinc_slot import read_number
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.sandbox.kernel.calls import kill_with_parent

TICK_S: Final = 1.0
QUIT_S: Final = 30.0
"""How long a program may take to write its state down, s."""

ABORT_S: Final = 5.0
"""How long a program may take to end that is not wanted any more, s."""
UNREAD_S: Final = 180.0
"""A control message that is not read for so long: the program is stuck."""


def start_in_slot(slot: Path, launcher: Path) -> SlotProcess:
    """Start the launcher as a BOINC client does, in a session of its own.

    Raises:
        OSError: it cannot be started.
        TrustError: STO-F038 the shared memory was replaced.
    """
    segment = open_segment(slot / MMAP_FILE)
    if segment is None:
        raise FileNotFoundError(errno.ENOENT, "a slot lost its file", MMAP_FILE)
    try:
        with (slot / STDERR_FILE).open("ab") as err:
            process = subprocess.Popen(
                [str(launcher)],
                cwd=slot,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
                preexec_fn=kill_with_parent,  # noqa: PLW1509 - one call into libc
            )
    except BaseException:
        segment.close()
        raise
    return SlotProcess(slot, process, segment)


class SlotProcess:
    """One start of a program; ends with all that it started."""

    def __init__(
        self, slot: Path, process: subprocess.Popen[bytes], segment: Segment
    ) -> None:
        self._slot = slot
        self._process = process
        self._segment = segment
        self._lock = threading.Lock()
        self._asked: Control | None = None
        self._asked_at = 0.0
        self._deadline: float | None = None
        self._status = AppStatus()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.ended_by_us = False

    @property
    def status(self) -> AppStatus:
        """What the program said last."""
        return self._status

    def ask(self, control: Control, *, patience_s: float | None = None) -> None:
        """Ask for something, from any thread; only the last request counts.

        `patience_s`: the program is killed when it has not ended by then; it counts as
        ended by us.
        """
        with self._lock:
            self._asked, self._asked_at = control, time.monotonic()
            # The earliest deadline stays: a second request grants no more time.
            if patience_s is not None:
                self.ended_by_us = True
                limit = time.monotonic() + patience_s
                self._deadline = min(limit, self._deadline or limit)
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def cancel(self) -> None:
        """Abort the task."""
        self.ask(Control.ABORT, patience_s=ABORT_S)

    def quit(self) -> None:
        """Have the task write its state down and end."""
        self.ask(Control.QUIT, patience_s=QUIT_S)

    def suspend(self) -> None:
        """Let the task stand still."""
        self.ask(Control.SUSPEND)

    def resume(self) -> None:
        """Let it go on."""
        self.ask(Control.RESUME)

    def wait(self) -> int:
        """Keep the channels going until the end; returns the exit code."""
        # A descriptor of this very process: its number could be given to another.
        descriptor = os.pidfd_open(self._process.pid)
        try:
            while not self._has_ended(descriptor):
                self._serve()
        finally:
            os.close(descriptor)
            self._end()
        return self._process.wait()

    def _end(self) -> None:
        """Kill its process group, and be done with the slot; the jails die with it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        with self._lock:
            os.close(self._wake)
            self._wake = -1  # others may still ask
            self._segment.close()

    def _has_ended(self, descriptor: int) -> bool:
        """Wait a moment; say whether the process has ended."""
        waiting = self._asked is not None  # until it is read, look more often
        ready, _, _ = select.select(
            [descriptor, self._wake], [], [], TICK_S / 10 if waiting else TICK_S
        )
        if self._wake in ready:
            os.eventfd_read(self._wake)
        return descriptor in ready

    def _serve(self) -> None:
        """Send and take what is due; kill who is out of time."""
        with self._lock:
            now = time.monotonic()
            # A program that reads no requests cannot be suspended, so it must not go
            # on.
            stuck = self._asked is not None and now - self._asked_at > UNREAD_S
            late = self._deadline is not None and now > self._deadline
            if stuck or late:
                os.killpg(self._process.pid, signal.SIGKILL)
                return
            self._segment.put(Channel.HEARTBEAT, HEARTBEAT)
            if self._asked is not None and self._segment.put(
                Channel.CONTROL_REQUEST, render_control(self._asked)
            ):
                self._asked = None
            text = self._segment.take(Channel.APP_STATUS)
        if text is not None:
            self._hear(text)

    def _hear(self, text: bytes) -> None:
        """Take what the program says of itself (hostile, bounded)."""
        status = parse_status(text)
        if status is None:
            return
        if status.checkpoint_cpu_time > self._status.checkpoint_cpu_time:
            write_state(self._slot, status)
        self._status = status


def parse_status(text: bytes) -> AppStatus | None:
    """Return what an application says (hostile), None when it is not all there."""
    document = text.decode("utf-8", "replace")
    current = read_number(document, "current_cpu_time")
    checkpoint = read_number(document, "checkpoint_cpu_time")
    if current is None or checkpoint is None:
        return None
    done = read_number(document, "fraction_done") or 0.0
    return AppStatus(current, checkpoint, min(done, 1.0))


def render_control(*wanted: Control) -> bytes:
    """Return a control message."""
    return "".join(f"<{one.value}/>" for one in wanted).encode()
