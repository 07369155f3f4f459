"""A whole embedded deployment as processes on this machine, to start, kill and start again.

Used by the demo, by end-to-end tests and by kill rounds. Only the command line is used, so
what is exercised is what people run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from stoilo.core.errors import InternalError
from stoilo.executor.verifier.optin import OptIn
from stoilo.executor.volunteer.optin_file import write_opt_in

START_TIMEOUT_S = 120.0
VOLUNTEER = "stoilo.executor.volunteer"
STOP_TIMEOUT_S = 60.0


class UpLine(msgspec.Struct, frozen=True):
    """The first stdout line of `stoilo up` (design §7)."""

    grpc: str
    http: str
    project: str | None
    token: str
    connection: str
    volunteers: int


@dataclass
class Deployment:
    """`stoilo up` on `data`, restartable on the ports it was first given."""

    data: Path  # the server's data directory
    volunteers: int = 0  # how many local volunteers `up` runs
    # file that receives stderr, for a person to read after a failure
    log: Path | None = None
    grpc: str = "127.0.0.1:0"
    http: str = "127.0.0.1:0"
    log_policy: Path | None = None  # file that names the log's witnesses, None for none
    options: tuple[str, ...] = ()  # further words of the command line
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    line: UpLine | None = field(default=None, init=False)

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

    def start(self) -> UpLine:
        """Run `stoilo up` and return its line; later starts reuse the bound ports."""
        log = self.log or self.data.parent / f"{self.data.name}.log"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command(), stdout=subprocess.PIPE, stderr=errors
            )
        self.line = msgspec.json.decode(self._first_line(log), type=UpLine)
        self.grpc = self.line.grpc
        self.http = self.line.http.removeprefix("http://").rstrip("/")
        return self.line

    def _command(self) -> list[str]:
        places = ["--data", str(self.data), "--volunteers", str(self.volunteers)]
        addresses = ["--grpc", self.grpc, "--http", self.http]
        policy = ["--log-policy", str(self.log_policy)] if self.log_policy else []
        return [sys.executable, "-m", "stoilo", "up",
                *places, *addresses, *policy, *self.options]  # fmt: skip

    def log_key(self) -> str:
        """Return the log's verifier key, which exists before the first start."""
        done = subprocess.run(
            [sys.executable, "-m", "stoilo", "audit", "key", "log",
             "--data", str(self.data)],
            check=True,
            capture_output=True,
        )  # fmt: skip
        return done.stdout.decode().strip()

    def _first_line(self, log: Path) -> bytes:
        process = self.process
        if process is None or process.stdout is None:
            raise InternalError("STO-U005", "the server is not running")
        deadline = time.monotonic() + START_TIMEOUT_S
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    break
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                buffer += chunk
        if b"\n" not in buffer:
            self.kill()
            raise InternalError(
                "STO-U005",
                "`stoilo up` did not become ready",
                hint=f"its messages are in {log}",
            )
        return buffer.partition(b"\n")[0]

    @property
    def pid(self) -> int:
        """Process id of the running server, 0 when there is none."""
        return self.process.pid if self.process is not None else 0

    def kill(self) -> None:
        """End the server process with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server with SIGTERM and wait; SIGKILL if it does not listen."""
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(sign)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self.process = None

    def account(self, email: str) -> str:
        """Return the authenticator of a volunteer's account on this project."""
        output = subprocess.run(
            [sys.executable, "-m", "stoilo", "boinc", "account", "--data", str(self.data),
             "--email", email, "--max-level", "numeric", "--json"],
            check=True,
            capture_output=True,
        ).stdout  # fmt: skip
        return str(json.loads(output)["key"])

    def attach(
        self,
        email: str,
        state: Path,
        *,
        program: str = VOLUNTEER,
        max_level: str = "numeric",
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one more volunteer as an own user and host, outside the server.

        `max_level` is what the volunteer's own opt-in file says, which is named to it
        explicitly; empty makes none. `environ` replaces the environment.
        `program` is the module that is run, for one that cheats.
        """
        if self.line is None:
            raise InternalError("STO-U005", "the server is not running")
        state.mkdir(parents=True, exist_ok=True)
        key_file = state / "key"
        key_file.write_text(self.account(email) + "\n")
        key_file.chmod(0o600)
        root = self.data / "keys" / "root.json"
        places = ["--project", str(self.line.project), "--key", f"@{key_file}"]
        level = _opt_in(state, max_level) if max_level else []
        with (state / "volunteer.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", program, *places, "--state", str(state),
                 "--root", str(root), *level],
                stdout=log,
                stderr=log,
                env=None if environ is None else dict(environ),
            )  # fmt: skip


def _opt_in(state: Path, max_level: str) -> list[str]:
    """Write a volunteer's own opt-in file; returns the words that name it."""
    file = state / "optin.toml"
    write_opt_in(file, OptIn(max_level=max_level))
    return ["--opt-in", str(file)]
