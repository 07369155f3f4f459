"""Child processes of `stoilo up`: started, watched, restarted, never left behind.

On Linux a child asks the kernel for SIGTERM when its parent dies, so kill -9 of the
server leaves no orphan that would fight with the next start over sockets and state.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stoilo.core.rate_limit import Backoff

LOGGER = logging.getLogger(__name__)
PR_SET_PDEATHSIG = 1
STOP_S = 5.0
PAUSES = functools.partial(Backoff, 0.5, 30.0, jitter=0.0)
STEADY_S = 20.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How one child is run."""

    name: str  # for logs
    module: str  # run as ``python -m module``
    arguments: Sequence[str]  # after it; no secrets (process lists are public)
    log: Path  # file for stdout and stderr, appended


class SupervisedChild:
    """One child; call `check` now and then from the main thread to restart it.

    Must be started from the thread that lives as long as the process, because the
    kernel's parent-death signal is tied to the starting thread.
    """

    def __init__(
        self,
        spec: ChildSpec,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self._environ = dict(environ)
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._started = 0.0
        self._pauses = PAUSES()
        self._retry_at = 0.0
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs or before its start."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the child."""
        if self._log is None:
            self._log = self.spec.log.open("ab")
        command = [sys.executable, "-m", __name__, str(os.getpid()), self.spec.module]
        self._process = subprocess.Popen(
            [*command, *self.spec.arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environ,
            # A Ctrl-C at the terminal is for the server, which stops its children in order.
            start_new_session=True,
        )
        self._started = self._clock()

    def check(self) -> bool:
        """Restart the child if it died and its pause is over; returns whether it runs."""
        if self.pid is not None:
            return True
        now = self._clock()
        if self._retry_at == 0.0:
            # One that dies at its start waits longer each time.
            if now - self._started > STEADY_S:
                self._pauses.reset()
            self._retry_at = now + self._pauses.next_pause()
            code = self._process.returncode if self._process else None
            LOGGER.warning("%s ended with %s, restarting", self.spec.name, code)
        if now < self._retry_at:
            return False
        self._retry_at = 0.0
        self.restarts += 1
        self.start()
        return True

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Ask the child to end, kill it after `STOP_S`, and reap it."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None


def main(arguments: list[str]) -> None:
    """Become ``python -m MODULE ARGS…`` with a parent-death signal set."""
    parent, module, *rest = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the signal was armed
        sys.exit(0)
    command = [sys.executable, "-m", module, *rest]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(sys.argv[1:])
