"""A project in a process of its own: engine and HTTP face, without gate, log and jail.

For tests and benchmarks of what hosts see. Workunits are made before it starts; how they
end is written to a file, one line each. `python -m tests.support.project DIRECTORY`
serves until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded.accounts.roster import open_roster
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.body_limit import BodyPace
from stoilo.server.engines.embedded.web.rate_limit import CallLimits
from stoilo.server.engines.interface import WorkunitOutcome
from stoilo.server.engines.workunits import WorkunitSpec
from stoilo.server.http.web_server import TimedProtocol
from tests.support.engine import BodyValidation, ProjectServer
from tests.support.mariadb import DYING

__all__ = ["OutcomeFile", "ProjectProcess"]

STOP_S = 60.0
ENGINE, OUTCOMES, LOG = "engine", "outcomes", "log"


@dataclass(frozen=True, slots=True)
class OutcomeFile:
    """An assimilator that writes name and kind of every outcome into a file."""

    path: Path

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Take one outcome."""
        with self.path.open("a") as file:
            file.write(f"{outcome.workunit} {outcome.kind.value}\n")

    def read(self) -> dict[str, str]:
        """Return the kind of each outcome so far by workunit."""
        if not self.path.exists():
            return {}
        lines = self.path.read_text().splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}


@dataclass
class ProjectProcess:
    """A project below `directory`; enter to start it.

    Attributes:
        directory: where everything lies.
        url: master URL with final slash, once started.
    """

    directory: Path
    url: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def create(self, specs: Sequence[WorkunitSpec]) -> None:
        """Make workunits, before the start."""
        engine = EmbeddedEngine(self.directory / ENGINE)
        engine.create_workunits(specs)
        engine.close()

    def keys(self, count: int, *, prefix: str = "v") -> list[str]:
        """Return the keys of that many accounts, made if need be."""
        emails = [f"{prefix}{number}@example.org" for number in range(count)]
        with contextlib.closing(open_roster(self.directory / ENGINE)) as roster:
            return [roster.accounts.ensure(email, 1).key for email in emails]

    def outcomes(self) -> dict[str, str]:
        """Return how workunits have ended so far."""
        return OutcomeFile(self.directory / OUTCOMES).read()

    def log(self) -> str:
        """Return what the process has logged."""
        return (self.directory / LOG).read_text()

    @property
    def pid(self) -> int:
        """Process id, 0 when it does not run."""
        return self.process.pid if self.process else 0

    def __enter__(self) -> Self:
        with (self.directory / LOG).open("ab") as log:
            self.process = subprocess.Popen(
                [*DYING, sys.executable, "-m", "tests.support.project", self.directory],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()
        if not self.url:
            raise InternalError("STO-U005", f"the project does not start: {self.log()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait(STOP_S)
        if process.stdout is not None:
            process.stdout.close()


MANY = CallLimits(
    account_calls=30,
    scheduler_calls_of_address=10**9,
    scheduler_calls_of_account=10**9,
)
"""A thousand simulated hosts have one address."""


class HastyProtocol(TimedProtocol):
    """Gives up heads sooner, so that a test need not wait."""

    head_s = 5.0


def serve(directory: Path) -> None:
    """Serve the project below `directory` until this process is ended."""
    pace = Pace(next_rpc_delay_s=0.05)
    engine = EmbeddedEngine(
        directory / ENGINE, options=EngineOptions(idle_s=0.05, pace=pace)
    )
    options = HttpOptions(bodies=BodyPace(pause_s=2.0), calls=MANY)
    with ProjectServer(engine, options=options, protocol=HastyProtocol) as server:
        engine.start(BodyValidation(), OutcomeFile(directory / OUTCOMES))
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        os.close(1)
        threading.Event().wait()


def main() -> int:
    """Serve the directory named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    serve(parser.parse_args().directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
