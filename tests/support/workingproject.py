"""A project on which an honest volunteer works all the time, whatever others do to it."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from stoilo.core.types import Redundancy
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer
from tests.support.attackers import HeldCopy, resident_kib, take_copy
from tests.support.engine import EchoExecutor, make_spec
from tests.support.project import ProjectProcess
from tests.support.wire import BoincPeer

__all__ = ["WorkingProject"]

SINGLE: Final = Redundancy(
    min_quorum=1, target_results=1, max_error=5, max_total=9, max_success=5
)
WORKUNITS: Final = 3000
"""More than are finished while a module's attacks last, on any machine."""

STEPS: Final = 3
"""Tasks that the honest volunteer finishes during or after every attack."""

ON_THEIR_WAY: Final = 4
"""Most tasks that are done and not yet assimilated, once things have settled."""


@dataclass(frozen=True)
class WorkingProject:
    """A project, a volunteer who works all the time, and keys for others.

    Attributes:
        project: in a process of its own.
        honest: what the volunteer runs tasks by.
        keys: of accounts that nobody has used yet.
        wait: waits until a condition holds.
    """

    project: ProjectProcess
    honest: EchoExecutor
    keys: Iterator[str]
    wait: Callable[..., object]

    @classmethod
    @contextmanager
    def make(cls, folder: Path, wait: Callable[..., object]) -> Iterator[Self]:
        """Run one in `folder` and, at the end, see that nothing honest was lost."""
        project = ProjectProcess(folder)
        names = [f"w{number}_1" for number in range(WORKUNITS)]
        project.create([make_spec(name, redundancy=SINGLE) for name in names])
        key, *others = project.keys(60)
        honest = EchoExecutor(seconds=0.1)
        with project, _volunteering(project, key, honest):
            made = cls(project, honest, iter(others), wait)
            made.goes_on()
            yield made
            made.check_nothing_is_lost()

    def peer(self) -> BoincPeer:
        """Return somebody with an account."""
        return BoincPeer(self.project.url, next(self.keys))

    def take(self, peer: BoincPeer, **words: object) -> HeldCopy:
        """Get a copy as an honest host does; there is always one."""
        copy = take_copy(peer, **words)
        assert copy is not None
        return copy

    def query(self, text: str, *values: object) -> list[tuple[object, ...]]:
        """Ask the project's database, read-only."""
        file = self.project.directory / "engine" / "engine.sqlite"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as found:
            return found.execute(text, values).fetchall()

    def rows(self, table: str) -> int:
        """Count the rows of a table of the project's database."""
        (count,) = self.query("select count(*) from " + table)[0]  # noqa: S608 - our names
        return int(str(count))

    def state(self, copy: str) -> tuple[object, ...]:
        """Return state and outcome of a copy."""
        (row,) = self.query(
            "select state, outcome from engine_result where name=?", copy
        )
        return row

    def refusals(self, code: str) -> int:
        """Return how many lines of the operator's log have a code."""
        return len(re.findall(rf"refused \S+ from 127\.0\.0\.1 \[{code}\]", self.log()))

    def log(self) -> str:
        """Return what the project has said to its operator."""
        return self.project.log()

    def goes_on(self) -> None:
        """Wait until the honest volunteer has finished some more tasks."""
        before = len(self.honest.done)
        self.wait(lambda: len(self.honest.done) >= before + STEPS)

    def connect(self) -> socket.socket:
        """Return a connection to the project, for whoever speaks by himself."""
        address = urlsplit(self.project.url)
        return socket.create_connection((address.hostname, address.port), timeout=60)

    def kib(self) -> int:
        """Return the project's resident memory, KiB."""
        return resident_kib(self.project.pid)

    def check_nothing_is_lost(self) -> None:
        """Assert that what the honest volunteer did counts, and nothing went wrong inside."""
        done = {name.rpartition("_")[0] for name in self.honest.done}
        self.wait(lambda: len(done - set(self.project.outcomes())) <= ON_THEIR_WAY)
        kinds = self.project.outcomes()
        assert {kinds[name] for name in done & set(kinds)} == {"canonical"}
        assert "Traceback" not in self.log()


@contextmanager
def _volunteering(
    project: ProjectProcess, key: str, executor: EchoExecutor
) -> Iterator[None]:
    """Let a volunteer work in a thread until the end of the block."""
    volunteer = Volunteer(
        Settings(project.url, key, backoff_s=(0.05, 0.2)),
        Ledger(project.directory / "volunteer", project.url),
        Transfer(project.url, timeout_s=60),
        executor,
    )
    thread = threading.Thread(target=volunteer.run)
    thread.start()
    try:
        yield
    finally:
        volunteer.stop()
        thread.join()
        volunteer.close()
