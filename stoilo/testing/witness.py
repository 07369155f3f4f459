"""A witness as a process of its own, to start, kill and start again.

Only the command line is used, so what is exercised is what people run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from stoilo.core.errors import InternalError

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


@dataclass
class WitnessProcess:
    """`stoilo audit witness` in `data`, restartable on the port it was first given."""

    data: Path  # the witness's directory; its key is made at once
    name: str  # its name
    # verifier keys of the logs that it watches, as many as known by `start`
    logs: Sequence[str] = ()
    logs_file: Path | None = None  # file with more of them
    # certificate and key file, None for plain HTTP
    tls: tuple[Path, Path] | None = None
    vkey: str = field(default="", init=False)  # its own verifier key
    # where it answers; filled in by the first `start`
    url: str = field(default="", init=False)
    listen: str = field(default="127.0.0.1:0", init=False)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Make the key."""
        done = subprocess.run(
            [sys.executable, "-m", "stoilo", "audit", "key", "witness",
             "--data", str(self.data), "--name", self.name],
            check=True,
            capture_output=True,
        )  # fmt: skip
        self.vkey = done.stdout.decode().strip()

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

    def start(self) -> str:
        """Run it and return its URL; later starts reuse the bound port."""
        words = ["--data", str(self.data), "--listen", self.listen]
        for vkey in self.logs:
            words += ["--log", vkey]
        words += ["--logs", str(self.logs_file)] if self.logs_file else []
        if self.tls is not None:
            certificate, key = map(str, self.tls)
            words += ["--certificate", certificate, "--certificate-key", key]
        with (self.data / "witness.log").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stoilo", "audit", "witness", *words],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.url = str(json.loads(self._first_line())["url"])
        self.listen = self.url.partition("://")[2].rstrip("/")
        return self.url

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM, wait, and return its exit code."""
        return self._end(signal.SIGTERM)

    def _first_line(self) -> bytes:
        stream = self.process.stdout if self.process else None
        if stream is None:
            raise InternalError("STO-U005", "the witness is not running")
        deadline, line = time.monotonic() + START_TIMEOUT_S, b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                chunk = b""
                if left > 0 and selector.select(left):
                    chunk = os.read(stream.fileno(), 4096)
                if not chunk:
                    self.kill()
                    raise InternalError(
                        "STO-U005",
                        "the witness did not become ready",
                        hint=f"its messages are in {self.data / 'witness.log'}",
                    )
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


def write_log_policy(
    path: Path, witnesses: Sequence[WitnessProcess], threshold: int
) -> Path:
    """Write a project's log policy: `threshold` of `witnesses`; returns `path`."""
    names = [f"w{number}" for number in range(1, len(witnesses) + 1)]
    lines = [
        f"witness {name} {one.vkey} {one.url}"
        for name, one in zip(names, witnesses, strict=True)
    ]
    lines += [f"group enough {threshold} {' '.join(names)}", "quorum enough", ""]
    path.write_text("\n".join(lines))
    return path
