"""A `stoilo` command that serves until it is told to stop: started, killed, started again.

Only the command line is used, so what is exercised is what people run.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from stoilo.core.errors import InternalError

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


@dataclass
class ServedCommand:
    """A command that prints one line on stdout when it is ready."""

    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def start(self) -> object:
        """Run it until it is ready; each kind of command says what that gives."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """Process id of what runs, 0 when there is nothing."""
        return self.process.pid if self.process is not None else 0

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM and wait, SIGKILL if it does not listen; its exit code."""
        return self._end(signal.SIGTERM)

    def words(self) -> list[str]:
        """Return what stands behind ``stoilo`` on its command line."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Return the whole command line."""
        return [sys.executable, "-m", "stoilo", *self.words()]

    def run(self, log: Path) -> bytes:
        """Start it, its messages into `log`; returns its first line.

        Raises:
            InternalError: ``STO-U005`` when no line comes.
        """
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        line = self._first_line(self.process)
        if not line.endswith(b"\n"):
            self.kill()
            said = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise InternalError(
                "STO-U005",
                f"`stoilo {self.words()[0]}` did not become ready: {said or 'it said nothing'}",
                hint=f"its messages are in {log}",
            )
        return line

    @staticmethod
    def _first_line(process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        deadline, line = time.monotonic() + START_TIMEOUT_S, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in line:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    break
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                line += chunk
        return line

    def _end(self, sign: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(sign)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return process.returncode


def run_stoilo(*words: str) -> str:
    """Return what a `stoilo` command prints; it must end well."""
    command = [sys.executable, "-m", "stoilo", *words]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()
