"""The embedded engine: store, accounts, scheduler and uploads behind one object.

One thread moves workunits: it asks the rules, puts the questions to the server's
validator on a few threads, writes the answers and delivers outcomes. It holds no state
of its own, so a crash at any point loses nothing: what was not written is asked again.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from stoilo.core.errors import StoiloError
from stoilo.executor.verifier.release.trust import parse_release_pack
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded.answering import answer, is_pending, is_unsure
from stoilo.server.engines.embedded.database import Database, NeedsWritingError
from stoilo.server.engines.embedded.figures import read_figures
from stoilo.server.engines.embedded.people.accounts import Accounts, load_secret
from stoilo.server.engines.embedded.people.roster import Roster
from stoilo.server.engines.embedded.people.stats import Statistics
from stoilo.server.engines.embedded.purge import PURGED_TOGETHER, Retention, purge
from stoilo.server.engines.embedded.rules.rejections import (
    Owners,
    of_one_owner,
    reject_copies,
)
from stoilo.server.engines.embedded.scheduling.dispatch import Chance, Pace
from stoilo.server.engines.embedded.scheduling.lending import forget_lost_hosts
from stoilo.server.engines.embedded.scheduling.scheduler import Scheduler
from stoilo.server.engines.embedded.scheduling.workunitstatus import read_status
from stoilo.server.engines.embedded.store import (
    INCONCLUSIVE_RETRY_S,
    PENDING_RETRY_S,
    Store,
)
from stoilo.server.engines.embedded.wire.catalogue import change_catalogue
from stoilo.server.engines.embedded.wire.depot import Depot
from stoilo.server.engines.embedded.wire.mirrored import MirrorDesk
from stoilo.server.engines.embedded.wire.programs import (
    check_programs,
    offered_platforms,
    program_files,
    store_programs,
)
from stoilo.server.engines.embedded.wire.uploadroom import UploadLimits
from stoilo.server.engines.embedded.wire.uploads import UploadDesk
from stoilo.server.engines.interface import NotDecidedYet, WorkunitFile
from stoilo.server.engines.mirrorboard import MirrorBoard
from stoilo.server.engines.rounds import Round

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from stoilo.server.engines.embedded.verdicts import Answers, Question
    from stoilo.server.engines.embedded.wire.depot import Download
    from stoilo.server.engines.figures import EngineFigures
    from stoilo.server.engines.interface import (
        AppProgram,
        Assimilator,
        CodeSignKey,
        Validation,
        WorkunitOutcome,
        WorkunitSpec,
        WorkunitStatus,
    )
    from stoilo.server.engines.mirrors import Mirror

__all__ = ["EmbeddedEngine", "EngineOptions"]

log = logging.getLogger(__name__)

MOVED_TOGETHER = 16
"""Workunits in one transaction: hosts that call wait as long for the write lock."""

PURGE_EVERY_S = 600.0
PURGE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one embedded engine.

    Attributes:
        pace: how fast work is handed out.
        batch: workunits moved in one step.
        validators: validator questions asked at the same time.
        idle_s: pause of the moving thread when nothing happens, s.
        seen_within_s: a host counts as attached when it called within that time, s.
        spot_check_rate: share of canonical results that a trusted host computes again,
            0..1.
        mirrors: data servers besides this one.
        retention: how long rows are kept that nobody needs.
        draw: uniform in [0, 1); whom to check must not be foreseeable by any host.
        lots: the same, for which of the copies that wait go out first.
        uploads: how much of the disk result files may take.
    """

    pace: Pace = field(default_factory=Pace)
    batch: int = 64
    validators: int = 2
    idle_s: float = 1.0
    seen_within_s: int = 600
    spot_check_rate: float = 0.0
    retention: Retention = field(default_factory=Retention)
    draw: Callable[[], float] = random.SystemRandom().random
    lots: Callable[[], float] = random.SystemRandom().random
    uploads: UploadLimits = field(default_factory=UploadLimits)
    mirrors: tuple[Mirror, ...] = ()


class EmbeddedEngine:
    """A whole BOINC-compatible project in this process; see `interface.Engine`.

    Attributes:
        accounts: the volunteers' accounts.
        roster: people and hosts (for pages and commands).
        statistics: the public export.
        scheduler: answers scheduler requests (for `http`).
        uploads: takes result files (for `http`).
        mirrors: which data servers hosts are sent to.
        mirror_desk: what those may have.
        changes: grows whenever there may be new copies to hand out.
    """

    def __init__(
        self,
        directory: Path,
        *,
        database_url: str = "",
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open or make the engine under `directory` (its own, 0700).

        Raises:
            InternalError: ``STO-E003`` or ``STO-E005``.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._options = options or EngineOptions()
        self._clock = clock
        self._database = Database(
            database_url or f"sqlite:///{directory / 'engine.sqlite'}"
        )
        self._database.upgrade()
        self._depot = Depot(directory / "files")
        self.uploads = UploadDesk(
            self._database,
            directory / "uploads",
            limits=self._options.uploads,
            clock=clock,
        )
        self._store = Store(
            self._database,
            self._depot,
            directory / "uploads",
            self._spot_check,
            self.uploads.forget,
        )
        self.accounts = Accounts(
            self._database, load_secret(directory / "account.secret")
        )
        self.roster = Roster(self._database, self.accounts)
        self.statistics = Statistics(self._database, directory / "stats")
        self.mirrors = MirrorBoard(self._options.mirrors, clock)
        self.mirror_desk = MirrorDesk(
            self._database, self._depot, directory / "mirror.secret"
        )
        self.changes = 0
        self._served: tuple[Validation, Assimilator] | None = None
        self._round = Round(
            "stoilo-engine", (self._serve, self._purge_in_time), self._options.idle_s
        )
        self.scheduler = Scheduler(
            self._database,
            pace=self._options.pace,
            on_report=self._round.wake,
            chance=Chance(self._options.draw, self._options.lots),
            mirrors=self.mirrors,
        )
        self._purge_at = 0.0
        self._answered: SimpleQueue[str] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        with self._database.read() as connection:
            self._depot.sweep(connection)
        with self._database.write() as connection:
            forget_lost_hosts(connection, self.now())
        self.uploads.sweep()

    def now(self) -> int:
        """Return the engine's time, s since 1970."""
        return int(self._clock())

    def create_workunits(self, specs: Sequence[WorkunitSpec]) -> None:
        """Store workunits in one durable step; see `interface.Engine`."""
        self._store.create(specs, self.now())
        self.changes += 1
        self._round.wake()

    def cancel(self, *names: str) -> None:
        """End workunits unless they have ended; see `interface.Engine`."""
        self._store.cancel(names, self.now())
        self._round.wake()

    def ask_again(self, name: str) -> None:
        """Take it that a workunit's validators have run; see `interface.Engine`."""
        self._answered.put(name)
        self._round.wake()

    def reject(self, name: str, owners: Owners = of_one_owner) -> int:
        """Mark the hosts of a workunit's valid copies; see `interface.HostRecords`."""
        with self._database.write() as connection:
            return reject_copies(connection, name, self.now(), owners)

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on.

        Raises:
            TrustError: ``STO-K013`` when it is no release.
        """
        parse_release_pack(bundle)
        digest = hashlib.sha256(bundle).hexdigest()
        file = WorkunitFile(RELEASE, digest, bundle, sticky=True)
        with self._depot.hold([file]) as stored, self._database.write() as connection:
            self._depot.add_rows(connection, stored)
            old = self._store.set_release(digest, connection)
            change_catalogue(connection)
            keep = self._store.kept(connection)
            unused = self._depot.remove_unused(connection, old, keep)
        self._depot.unlink(unused)

    def set_programs(self, programs: Sequence[AppProgram], key: CodeSignKey) -> None:
        """Store what stock clients run from now on; see `interface.Engine`."""
        files = program_files(programs)
        with self._depot.hold(files) as stored, self._database.write() as connection:
            check_programs(programs, {one.digest: one.md5 for one in stored}, key)
            self._depot.add_rows(connection, stored)
            old = store_programs(connection, programs, key, self.now())
            change_catalogue(connection)
            keep = self._store.kept(connection)
            unused = self._depot.remove_unused(connection, old, keep)
        self._depot.unlink(unused)

    def platforms(self) -> tuple[str, ...]:
        """Return the platforms that stock clients have a program for (for `http`)."""
        with self._database.read() as connection:
            return offered_platforms(connection)

    def retain(self, digests: Collection[str]) -> None:
        """Keep input files of these digests between workunits (flavor archives)."""
        dropped = self._depot.retain(digests)
        if not dropped:
            return
        with self._database.write() as connection:
            keep = self._store.kept(connection)
            unused = self._depot.remove_unused(connection, dropped, keep)
        self._depot.unlink(unused)

    def find_download(self, token: str) -> Download | None:
        """Return the input file behind an untrusted token (for `http`)."""
        with self._database.read() as connection:
            return self._depot.find(connection, token)

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is; see `interface.Engine`."""
        since = self.now() - self._options.seen_within_s
        with self._database.read() as connection:
            return read_status(connection, name, since)

    def check_database(self) -> None:
        """Ask the database for a row; see `engines.figures.MeasuredEngine`."""
        with self._database.read() as connection:
            connection.exec_driver_sql("SELECT id FROM engine_user LIMIT 1").first()

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return the names whose outcome will not come; see `interface.Engine`."""
        return self._store.settled(names)

    def figures(self) -> EngineFigures:
        """Return how much work there is and how long it waits."""
        with self._database.read() as connection:
            return read_figures(connection, self.now())

    def start(self, validation: Validation, assimilator: Assimilator) -> None:
        """Begin to move workunits; see `interface.Engine`."""
        self._store.retry_outbox()
        self._pool = ThreadPoolExecutor(
            self._options.validators, thread_name_prefix="stoilo-validate"
        )
        self._served = (validation, assimilator)
        self._round.start()

    def close(self) -> None:
        """Stop moving workunits and close the database; see `interface.Engine`."""
        self._round.stop()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._database.close()

    def step(self, validation: Validation, assimilator: Assimilator) -> bool:
        """Move what can be moved; returns whether anything was. For one thread."""
        now = self.now()
        self.uploads.expire()
        self._hasten()
        due = self._store.due(now, self._options.batch)
        for at in range(0, len(due), MOVED_TOGETHER):
            self._move(due[at : at + MOVED_TOGETHER], validation)
        outcomes = self._store.outcomes(now, self._options.batch)
        taken = [one.workunit for one in outcomes if self._deliver(one, assimilator)]
        self._store.taken(taken, self.now())
        if due:
            self.changes += 1
        return bool(due or outcomes)

    def _move(self, due: Sequence[int], validation: Validation) -> None:
        """Move workunits until all of them wait for hosts, or have ended."""
        questions = self._store.advance(due, (), self.now())
        while questions:
            answers = self._ask(questions, validation)
            rows = [one.workunit_id for one in answers if not is_unsure(one)]
            for one in answers:
                if is_unsure(one):
                    wait = PENDING_RETRY_S if is_pending(one) else INCONCLUSIVE_RETRY_S
                    self._store.postpone(one.workunit_id, self.now() + wait)
            questions = self._store.advance(rows, answers, self.now())

    def _hasten(self) -> None:
        """Look again at what was told of; in the thread that may just have put it off."""
        count = min(self._answered.qsize(), self._options.batch)
        names = {self._answered.get() for _ in range(count)}
        try:
            if names:
                self._store.hasten(names)
        except StoiloError:  # the database is away; the names are not
            for name in names:
                self._answered.put(name)
            raise

    def _spot_check(self) -> bool:
        """Draw whether a canonical result is to be checked again."""
        rate = self._options.spot_check_rate
        return rate > 0 and self._options.draw() < rate

    def purge(self) -> bool:
        """Remove some rows that nobody needs any more; say if there may be others."""
        retention, now = self._options.retention, self.now()
        with self._database.read() as connection:
            try:
                return purge(connection, retention, now) > 0
            except NeedsWritingError:
                pass  # looked for beside any writer: mostly there is nothing
        with self._database.write() as connection:
            return purge(connection, retention, now) >= PURGED_TOGETHER

    def _purge_in_time(self) -> bool:
        """Purge when it is time: soon again where much is left."""
        if time.monotonic() >= self._purge_at:
            pause = PURGE_AGAIN_S if self.purge() else PURGE_EVERY_S
            self._purge_at = time.monotonic() + pause
        return False  # nothing waits for it

    def _serve(self) -> bool:
        """Move workunits; trouble of database or disk only slows it down."""
        return self._served is not None and self.step(*self._served)

    def _ask(self, questions: list[Question], validation: Validation) -> list[Answers]:
        """Put questions to the validator, several at the same time if started."""
        if self._pool is None:
            return [answer(question, validation) for question in questions]
        return list(
            self._pool.map(lambda question: answer(question, validation), questions)
        )

    def _deliver(self, outcome: WorkunitOutcome, assimilator: Assimilator) -> bool:
        """Hand one outcome to the server, which may hear it twice; say if it took it.

        It comes again until it was taken and that is noted.
        """
        try:
            assimilator.assimilate(outcome)
        except NotDecidedYet:
            self._store.refused(outcome.workunit, self.now())
            return False
        except Exception:  # the server's code must not stop the engine
            log.exception("outcome of %s was not taken", outcome.workunit)
            self._store.refused(outcome.workunit, self.now())
            return False
        return True
