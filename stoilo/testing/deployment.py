"""A whole embedded deployment as processes on this machine, to start, kill and start again.

Used by `stoilo.local`, the demo, end-to-end tests and kill rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stoilo.core.errors import InternalError
from stoilo.executor.verifier.optin import OptIn
from stoilo.executor.volunteer.optin_file import write_opt_in
from stoilo.testing.served import ServedCommand, run_stoilo

VOLUNTEER = "stoilo.executor.volunteer"


class UpLine(msgspec.Struct, frozen=True):
    """The first stdout line of `stoilo up` (design §7)."""

    grpc: str
    http: str
    project: str | None
    token: str
    connection: str
    volunteers: int


@dataclass
class Deployment(ServedCommand):
    """`stoilo up` on `data`, restartable on the ports it was first given."""

    data: Path  # the server's data directory
    volunteers: int = 0  # how many local volunteers `up` runs
    # file that receives stderr, for a person to read after a failure
    log: Path | None = None
    grpc: str = "127.0.0.1:0"
    http: str = "127.0.0.1:0"
    log_policy: Path | None = None  # file that names the log's witnesses, None for none
    options: tuple[str, ...] = ()  # further words of the command line
    line: UpLine | None = field(default=None, init=False)

    def start(self) -> UpLine:
        """Run `stoilo up` and return its line; later starts reuse the bound ports."""
        log = self.log or self.data.parent / f"{self.data.name}.log"
        self.line = msgspec.json.decode(self.run(log), type=UpLine)
        self.grpc = self.line.grpc
        self.http = self.line.http.removeprefix("http://").rstrip("/")
        return self.line

    def words(self) -> list[str]:
        """Return the words of its command line."""
        places = ["--data", str(self.data), "--volunteers", str(self.volunteers)]
        addresses = ["--grpc", self.grpc, "--http", self.http]
        policy = ["--log-policy", str(self.log_policy)] if self.log_policy else []
        return ["up", *places, *addresses, *policy, *self.options]

    def log_key(self) -> str:
        """Return the log's verifier key, which exists before the first start."""
        return run_stoilo("audit", "key", "log", "--data", str(self.data)).strip()

    def account(self, email: str) -> str:
        """Return the authenticator of a volunteer's account on this project."""
        words = ["--email", email, "--max-level", "numeric", "--json"]
        output = run_stoilo("boinc", "account", "--data", str(self.data), *words)
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
