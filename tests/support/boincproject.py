"""A project that hands frozen programs to BOINC clients, for tests with real ones."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.testing.deployment import Deployment, UpLine
from tests.support.boinc import BoincClient
from tests.support.wire import UNFINISHED, RawClient

__all__ = ["ONE_COPY", "SPIN", "TWO_COPIES", "BoincProject", "freeze_project"]

BUILD_S = 900.0
WAIT_S = 600.0
ONE_COPY = pb.RedundancyOptions(
    min_quorum=1,
    target_results=1,
    max_error=3,
    max_total=6,
    max_success=3,
    delay_bound_s=1800,
)
TWO_COPIES = pb.RedundancyOptions(
    min_quorum=2,
    target_results=2,
    max_error=3,
    max_total=6,
    max_success=3,
    delay_bound_s=1800,
)
LIMITS = pb.RunLimits(cpu_s=600, wall_s=7200)
"""Generous: clients give tasks only what nobody else wants of the processor."""

SPIN = b"""
def task(kwargs):
    value = 1
    for number in range(kwargs["rounds"]):
        value = (value * 31 + number) % 1000003
    return value
"""
"""Works for about a second every ten million rounds."""


def freeze_project(data: Path) -> None:
    """Make a project in `data` with frozen programs, for `pure` tasks; leaves none running.

    That takes half a minute, so tests do it once and give each `BoincProject` a copy.
    """
    with Deployment(data):
        run_boinc_command("programs", "--data", str(data), "--flavor", "pure", "--yes")


class BoincProject:
    """`stoilo up` on a development root with launcher, verifier and flavors.

    Args:
        frozen: data directory of `freeze_project`, which stays as it is.
    """

    def __init__(self, frozen: Path) -> None:
        self._frozen = frozen
        self._folder = Path(tempfile.mkdtemp(prefix="boinc-"))
        self._folder.chmod(0o755)  # clients run as another user below it
        self.deployment = Deployment(self._folder / "project")
        self._researcher: RawClient | None = None

    def __enter__(self) -> Self:
        """Start the server on a copy of the frozen project."""
        try:
            shutil.copytree(
                self._frozen, self.deployment.data, ignore=shutil.ignore_patterns("run")
            )
            self.deployment.start()
            self._researcher = RawClient(Path(self.line.connection)).__enter__()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server and remove everything."""
        if self._researcher is not None:
            self._researcher.__exit__(kind, error, trace)
        self._close()

    @property
    def line(self) -> UpLine:
        """Return what the server has said of itself."""
        assert self.deployment.line is not None
        return self.deployment.line

    @property
    def researcher(self) -> RawClient:
        """Return a researcher's channel."""
        assert self._researcher is not None
        return self._researcher

    @property
    def folder(self) -> Path:
        """Return where everything of it lies; it goes with the project."""
        return self._folder

    @property
    def keys(self) -> Path:
        """Return the directory of the release."""
        return self.deployment.data / "keys"

    def client(
        self, *, level: str = "pure", project: str = "", cpus: int = 2
    ) -> BoincClient:
        """Return a client of a new volunteer, not yet attached.

        Args:
            level: up to which the project may send this volunteer's tasks.
            project: master URL, if another than the server's own.
            cpus: processors that it believes to have.
        """
        name = f"v{secrets.token_hex(4)}"
        key = self.account(f"{name}@example.org", level)
        url = project or str(self.line.project)
        return BoincClient(self._folder / name, url, key, cpus)

    def account(self, email: str, level: str) -> str:
        """Return the (weak) key of a volunteer's account."""
        words = ["--data", str(self.deployment.data), "--email", email]
        return run_boinc_command("account", *words, "--max-level", level).strip()

    def submit(
        self,
        source: bytes = SPIN,
        arguments: object = None,
        *,
        redundancy: pb.RedundancyOptions = ONE_COPY,
        **fields: Any,
    ) -> str:
        """Return the id of a new task; raises ``STO-U005`` when it is refused."""
        return self.researcher.submit(
            task_module=source,
            arguments=encode(arguments if arguments is not None else {"rounds": 1}),
            redundancy=redundancy,
            limits=LIMITS,
            **fields,
        )

    def wait(self, task: str, client: BoincClient) -> pb.PollTaskResponse:
        """Return the answer of a task that has succeeded, by the help of `client`.

        Raises:
            InternalError: ``STO-U005`` with the client's log when it has not.
        """
        client.wait_for(lambda: self._state(task) not in UNFINISHED, WAIT_S)
        answer = self.researcher.poll(task)
        if answer.state != "succeeded":
            raise InternalError("STO-U005", f"{answer}\n{client.log_tail()}")
        return answer

    def _state(self, task: str) -> str:
        try:
            return self.researcher.poll(task).state
        except InternalError:  # the server is being started again
            return "running"

    def _close(self) -> None:
        self.deployment.stop()
        shutil.rmtree(self._folder)


def run_boinc_command(*words: str) -> str:
    """Return what a command of `stoilo boinc` prints; raises ``STO-U005``."""
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "boinc", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if done.returncode != 0:
        raise InternalError("STO-U005", f"stoilo boinc: {done.stderr[-500:]}")
    return done.stdout
