"""A live stock project driven by hand: BOINC's own scheduler, daemons and database.

The project is one for tests: accounts and workunits are added to it and stay, under names
of their own, so that nothing of it has to be deleted. Time passes by moving the rows of
these workunits back; everything else is BOINC's doing, and is waited for.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import create_engine, text

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import (
    ReceivedResult,
    WorkunitOutcome,
    WorkunitStatus,
)
from stoilo.server.engines.stock.engine import Pauses, StockEngine
from stoilo.server.engines.stock.installation.facts import short_host
from stoilo.server.engines.stock.project.directory import StockProject
from stoilo.server.engines.workunits import WorkunitSpec
from tests.support.engine import BodyValidation, OutcomeRecorder
from tests.support.stockvolunteer import StockVolunteer, create_stock_account

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["LiveBench", "LiveDaemons", "NamedEngine", "NamedRecorder", "live_bench"]

WAIT_S: Final = 120.0
FED_S: Final = 3
"""What is older has been seen by a feeder that looks every second."""

QUIET_S: Final = 1.5
_MAIL: Final = "stoilo-test"
_PENDING: Final = """SELECT COUNT(*) FROM workunit WHERE name LIKE :mine AND
 (transition_time <= UNIX_TIMESTAMP() OR need_validate = 1 OR assimilate_state = 1)"""
OWN_PENDING: Final = """SELECT COUNT(*) FROM stoilo_workunit WHERE name LIKE :mine
 AND retry_at <= :now AND (undelivered = 1 OR boinc_id = 0 AND outcome IS NULL)"""
"""What the engine has to do now: outcomes to deliver, workunits to make."""

_YOUNGEST: Final = """SELECT MAX(result.create_time), COUNT(*) FROM result, workunit
 WHERE workunit.id = workunitid AND workunit.name LIKE :mine AND server_state = 2"""
_PASS: Final = (
    """UPDATE result, workunit SET report_deadline = report_deadline - :s,
 sent_time = sent_time - :s WHERE workunit.id = workunitid AND workunit.name LIKE :mine
 AND server_state = 4""",
    """UPDATE workunit SET transition_time = transition_time - :s
 WHERE workunit.name LIKE :mine AND transition_time > UNIX_TIMESTAMP()""",
)
_FORGET: Final = "UPDATE host SET rpc_time = 1"
"""Nobody has called lately: neither earlier tests' computers nor real clients'."""

_CHOOSE: Final = """UPDATE user SET project_prefs = :prefs WHERE authenticator = :key"""
_PREFERENCES: Final = (
    "<project_preferences>\n<resource_share>100</resource_share>\n"
    "<project_specific>\n{}\n</project_specific>\n</project_preferences>\n"
)
_OPEN: Final = """SELECT name FROM workunit WHERE name LIKE :mine
 AND assimilate_state <> 2"""


@dataclass
class NamedEngine:
    """An engine under whose names a prefix stands."""

    engine: StockEngine
    prefix: str

    def now(self) -> int:
        """Return the engine's time."""
        return self.engine.now()

    def create_workunits(self, specs: Sequence[WorkunitSpec]) -> None:
        """Create them under the prefix; a name that makes no sense stays as it is."""
        self.engine.create_workunits(
            [replace(one, name=self._longer(one.name)) for one in specs]
        )

    def cancel(self, *names: str) -> None:
        """Cancel some."""
        self.engine.cancel(*(f"{self.prefix}{name}" for name in names))

    def ask_again(self, name: str) -> None:
        """Tell it of one."""
        self.engine.ask_again(f"{self.prefix}{name}")

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where one is."""
        return self.engine.status(f"{self.prefix}{name}")

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return the names of which nothing will be heard any more."""
        found = self.engine.settled([f"{self.prefix}{name}" for name in names])
        return frozenset(name.removeprefix(self.prefix) for name in found)

    def _longer(self, name: str) -> str:
        return f"{self.prefix}{name}" if name.startswith("w_") else name


@dataclass(slots=True)
class NamedRecorder(OutcomeRecorder):
    """An assimilator that takes a prefix away from the names it hears."""

    prefix: str = ""

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Take one outcome; those of earlier tests are of no interest."""
        if not outcome.workunit.startswith(self.prefix):
            return
        # not super(): a dataclass with slots is made anew, and super() knows the old one
        OutcomeRecorder.assimilate(
            self,
            replace(
                outcome,
                workunit=self._shorter(outcome.workunit),
                canonical=outcome.canonical and self._short(outcome.canonical),
                valid=tuple(map(self._short, outcome.valid)),
            ),
        )

    def _short(self, result: ReceivedResult) -> ReceivedResult:
        return replace(result, name=self._shorter(result.name))

    def _shorter(self, name: str) -> str:
        return name.removeprefix(self.prefix)


@dataclass
class LiveDaemons:
    """The daemons of a live project, to be killed and started again."""

    project: StockProject

    def pid(self, name: str) -> int:
        """Return the process in a pid file, by its name without ``.pid``."""
        path = self.project.root / f"pid_{short_host()}" / f"{name}.pid"
        return int(path.read_text())

    def kill(self, name: str) -> None:
        """End a daemon as a crash does."""
        os.kill(self.pid(name), signal.SIGKILL)

    def start_again(self) -> None:
        """Do what cron does every five minutes, as the project's owner."""
        owner = self.project.root.stat()
        root = os.geteuid() == 0
        subprocess.run(
            ["/usr/bin/python3", "bin/start", "--cron"],
            cwd=self.project.root,
            env={"PATH": "/usr/bin:/bin", "USER": "boincadm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=owner.st_uid if root else None,
            group=owner.st_gid if root else None,
            extra_groups=[] if root else None,
            check=True,
            timeout=WAIT_S,
        )


@dataclass
class LiveBench:
    """A stock engine on a live project, and volunteers that do as they are told.

    Attributes:
        project: that BOINC runs.
        scheduler: URL of its scheduler.
        owner: name of the server whose tasks the project has, empty while it has none's.
        outcomes: what the assimilator has heard.
    """

    project: StockProject
    scheduler: str
    owner: str = ""
    prefix: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}_")
    _offset: float = 0.0

    def __post_init__(self) -> None:
        """Start an engine of its own."""
        self.outcomes = NamedRecorder(prefix=self.prefix)
        self.validation = BodyValidation()
        self.daemons = LiveDaemons(self.project)
        self._volunteers: dict[int, StockVolunteer] = {}
        self._sql: SqlEngine = create_engine(
            self.project.database_url, pool_pre_ping=True
        )
        self._stock = self._open()

    @property
    def engine(self) -> NamedEngine:
        """Return the engine, under short names."""
        return NamedEngine(self._stock, self.prefix)

    def close(self) -> None:
        """Cancel what is open, so that no feeder's slot stays taken, and stop."""
        try:
            for name in self._names(_OPEN):
                self._stock.cancel(name)
            self.settle()
        finally:
            self._stock.close()
            self._sql.dispose()

    def fetch(self, user: int, *, room: int = 8) -> list[str]:
        """Return the copies that a user gets, once the feeder has seen all there are."""
        left = self._wait_for_feeder()
        volunteer = self.volunteer(user)
        found = self._ask(volunteer, room)
        end = time.monotonic() + 2 * FED_S
        while left and not found and time.monotonic() < end:
            time.sleep(1)
            found = self._ask(volunteer, room)
        mine = [name for name in found if name.startswith(self.prefix)]
        return [name.removeprefix(self.prefix) for name in mine]

    def finish(self, user: int, copy: str, body: bytes) -> None:
        """Upload and report a result."""
        self.volunteer(user).finish(self.prefix + copy, body)

    def fail(self, user: int, copy: str) -> None:
        """Report a failure."""
        self.volunteer(user).report(self.prefix + copy, state=3, status=195)

    def report(self, user: int, copy: str) -> None:
        """Report a success without an upload."""
        self.volunteer(user).report(self.prefix + copy)

    def unneeded(self, user: int, *copies: str) -> list[str]:
        """Return the copies that the user's computer is told to drop."""
        del copies  # the volunteer knows what it holds
        told = self.volunteer(user).unneeded()
        return [name.removeprefix(self.prefix) for name in told]

    def choose(self, user: int, preferences: str) -> None:
        """Store what a user chose on the project's page."""
        key = self.volunteer(user).key
        self._change(_CHOOSE, prefs=_PREFERENCES.format(preferences), key=key)

    def pass_time(self, seconds: int) -> None:
        """Let time pass for the workunits of this bench, once BOINC has done its part.

        A transitioner that is at work on one would write its old deadline afterwards.
        """
        self._wait_for_boinc()
        for query in _PASS:
            self._change(query, s=seconds)
        self._offset += seconds

    def settle(self) -> None:
        """Wait until BOINC and the engine have nothing left to do.

        Raises:
            InternalError: ``STO-U005`` when they do not come to rest.
        """
        end = time.monotonic() + WAIT_S
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S:
            if self._count(_PENDING) or self._count(OWN_PENDING):
                quiet_since = time.monotonic()
            if time.monotonic() > end:
                raise InternalError("STO-U005", "the project does not come to rest")
            time.sleep(0.2)

    def restart(self) -> None:
        """Stop the engine and start another on the same project."""
        self.away()
        self.back()

    def away(self) -> None:
        """Stop the engine; BOINC goes on."""
        self._stock.close()

    def back(self) -> None:
        """Start another engine on the same project."""
        self._stock = self._open()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something holds; raises ``STO-U005``."""
        end = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > end:
                raise InternalError("STO-U005", f"{what}: not within {WAIT_S} s")
            time.sleep(0.2)

    def volunteer(self, user: int) -> StockVolunteer:
        """Return a user's computer; the first time an account is made."""
        if user not in self._volunteers:
            mail = f"{_MAIL}-{self.prefix}{user}@example.org"
            key = create_stock_account(self.project.config.text("master_url"), mail)
            self._volunteers[user] = StockVolunteer(self.scheduler, key)
        return self._volunteers[user]

    def _ask(self, volunteer: StockVolunteer, room: int) -> list[str]:
        """Ask for work as one who has not called lately.

        A project that is not installed for tests has computers wait between two calls,
        and counts from the last call, refused or not: who asks too often is never sent
        anything.
        """
        self._change(_FORGET)
        return volunteer.fetch(room)

    def _open(self) -> StockEngine:
        engine = StockEngine(
            self.project,
            owner=self.owner,
            pauses=Pauses(idle_s=0.1, listen_s=2),
            clock=lambda: time.time() + self._offset,
        )
        engine.start(self.validation, self.outcomes)
        return engine

    def _wait_for_feeder(self) -> int:
        """Wait until the youngest unsent copy is old enough; return how many there are."""
        self._wait_for_boinc()
        with self._sql.connect() as connection:
            row = connection.execute(text(_YOUNGEST), self._mine)
            youngest, count = row.one()
        if youngest is not None:
            time.sleep(max(0.0, int(youngest) + FED_S - time.time()))
        return int(count)

    def _wait_for_boinc(self) -> None:
        self.wait_for(lambda: not self._count(_PENDING), "BOINC does its part")

    @property
    def _mine(self) -> dict[str, str]:
        return {"mine": f"{self.prefix}%".replace("_", r"\_")}

    def _count(self, query: str) -> int:
        with self._sql.connect() as connection:
            values = {**self._mine, "now": self._stock.now()}
            return int(connection.scalar(text(query), values) or 0)

    def _names(self, query: str) -> list[str]:
        with self._sql.connect() as connection:
            return list(connection.scalars(text(query), self._mine))

    def _change(self, query: str, **values: object) -> None:
        with self._sql.begin() as connection:
            connection.execute(text(query), {**self._mine, **values})


@contextmanager
def live_bench(
    project: StockProject, scheduler: str, owner: str = ""
) -> Iterator[LiveBench]:
    """Yield a bench; what it left open is cancelled afterwards."""
    bench = LiveBench(project, scheduler, owner)
    try:
        yield bench
    finally:
        bench.close()
