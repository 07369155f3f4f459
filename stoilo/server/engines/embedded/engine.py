"""The embedded engine: accounts, scheduler, uploads and workunits put together."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.core.background import Repeater
from stoilo.executor.verifier.trust import parse_release_pack
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded.accounts.accounts import Accounts, load_secret
from stoilo.server.engines.embedded.accounts.host_trust import (
    Owners,
    of_one_owner,
    reject_results,
)
from stoilo.server.engines.embedded.accounts.roster import Roster
from stoilo.server.engines.embedded.db.database import Database, NeedsWritingError
from stoilo.server.engines.embedded.files.app_versions import (
    change_catalogue,
    offered_platforms,
    program_files,
    store_programs,
    store_release,
)
from stoilo.server.engines.embedded.files.depot import Depot
from stoilo.server.engines.embedded.files.mirrors import Mirrors, is_mirror_key
from stoilo.server.engines.embedded.scheduling.dispatch import Chance, Pace
from stoilo.server.engines.embedded.scheduling.scheduler import Scheduler
from stoilo.server.engines.embedded.scheduling.sticky_files import forget_lost_hosts
from stoilo.server.engines.embedded.workunits.purge import (
    PURGED_TOGETHER,
    Retention,
    purge,
)
from stoilo.server.engines.embedded.workunits.status import (
    read_cost,
    read_figures,
    read_status,
)
from stoilo.server.engines.embedded.workunits.store import Store
from stoilo.server.engines.embedded.workunits.upload_quota import UploadLimits
from stoilo.server.engines.embedded.workunits.uploads import UploadDesk
from stoilo.server.engines.embedded.workunits.validator import Mover
from stoilo.server.engines.programs import check_programs
from stoilo.server.engines.status import SEEN_WITHIN_S
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from stoilo.server.engines.embedded.files.depot import Download
    from stoilo.server.engines.embedded.files.holders import Nodes
    from stoilo.server.engines.interface import (
        Assimilator,
        Cost,
        EngineFigures,
        Validation,
        WorkunitStatus,
    )
    from stoilo.server.engines.programs import AppProgram, CodeSignKey
    from stoilo.server.engines.workunits import WorkunitSpec

PURGE_EVERY_S = 600.0
CHECK_EVERY_S = 60.0  # of mirrors
SAMPLES = 64  # shared files that a check of the mirrors draws from
PURGE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one embedded engine."""

    pace: Pace = field(default_factory=Pace)  # how fast work is handed out
    idle_s: float = 1.0  # pause of the moving thread when nothing happens, s
    # share of canonical results that a trusted host computes again, 0..1
    spot_check_rate: float = 0.0
    # how long rows are kept that nobody needs
    retention: Retention = field(default_factory=Retention)
    # uniform in [0, 1); whom to check must not be foreseeable by any host
    draw: Callable[[], float] = random.SystemRandom().random
    # the same, for which of the results that wait go out first
    lots: Callable[[], float] = random.SystemRandom().random
    # how much of the disk result files may take
    uploads: UploadLimits = field(default_factory=UploadLimits)
    mirrors: tuple[str, ...] = ()  # URLs of data servers besides this one


class EmbeddedEngine:
    """A whole BOINC-compatible project in this process; see `interface.Engine`.

    Attributes:
        accounts: the volunteers' accounts.
        roster: people and hosts (for pages and commands).
        scheduler: answers scheduler requests (for `web`).
        uploads: takes result files (for `web`).
        mirrors: which data servers hosts are sent to.
        offers: is told whenever there may be new results to hand out.
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
            InternalError: ``STO-R030`` or ``STO-E005``.
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
        self.offers = self._store.offers
        self.accounts = Accounts(
            self._database, load_secret(directory / "account.secret")
        )
        self.roster = Roster(self._database, self.accounts)
        self._mirror_secret = directory / "mirror.secret"
        self._checks = Repeater("stoilo-mirrors", (self._check_mirrors,), CHECK_EVERY_S)
        self.mirrors = Mirrors(self._options.mirrors, clock, self._checks.wake)
        self._served: tuple[Validation, Assimilator] | None = None
        self._round = Repeater(
            "stoilo-engine", (self._serve, self._purge_in_time), self._options.idle_s
        )
        self.scheduler = Scheduler(
            self._database,
            pace=self._options.pace,
            on_report=self._round.wake,
            chance=Chance(self._options.draw, self._options.lots),
            mirrors=self.mirrors,
            note_sent=self._store.ranks.note_sent,
        )
        self._purge_at = 0.0
        self._mover = Mover(self._store, self.now)
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
        if self.mirrors.nodes is not None:
            shared = (f for spec in specs for f in spec.files if f.sticky)
            for digest in dict.fromkeys(file.digest for file in shared):
                self.mirrors.nodes.offer(digest, self._depot.path(digest))

    def join(self, nodes: Nodes) -> None:
        """Let shared files spread over the project's own nodes; before `start`."""
        self.mirrors.nodes, nodes.on_news = nodes, self._checks.wake

    def cancel(self, *names: str) -> None:
        """End workunits unless they have ended; see `interface.Engine`."""
        self._store.cancel(names, self.now())
        self._round.wake()

    def ask_again(self, name: str) -> None:
        """Take it that a workunit's validators have run; see `interface.Engine`."""
        self._mover.ask_again(name)
        self._round.wake()

    def reject(self, name: str, owners: Owners = of_one_owner) -> int:
        """Mark the hosts of a workunit's valid results; see `interface.HostRecords`."""
        with self._database.write() as connection:
            return reject_results(connection, name, self.now(), owners)

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
            old = store_release(connection, digest)
            change_catalogue(connection)
            unused = self._store.remove_unused(connection, old)
        self._depot.unlink(unused)

    def set_programs(self, programs: Sequence[AppProgram], key: CodeSignKey) -> None:
        """Store what stock clients run from now on; see `interface.Engine`."""
        files = program_files(programs)
        with self._depot.hold(files) as stored, self._database.write() as connection:
            check_programs(programs, {one.digest: one.md5 for one in stored}, key)
            self._depot.add_rows(connection, stored)
            old = store_programs(connection, programs, key, self.now())
            change_catalogue(connection)
            unused = self._store.remove_unused(connection, old)
        self._depot.unlink(unused)

    def platforms(self) -> tuple[str, ...]:
        """Return the platforms that stock clients have a program for (for `web`)."""
        with self._database.read() as connection:
            return offered_platforms(connection)

    def retain(self, digests: Collection[str]) -> None:
        """Keep input files of these digests between workunits (flavor archives)."""
        dropped = self._depot.retain(digests)
        if not dropped:
            return
        with self._database.write() as connection:
            unused = self._store.remove_unused(connection, dropped)
        self._depot.unlink(unused)

    def find_download(self, token: str) -> Download | None:
        """Return the input file behind an untrusted token (for `web`)."""
        with self._database.read() as connection:
            return self._depot.find(connection, token)

    def find_shared(self, digest: str, key: str) -> Path | None:
        """Return where a file for mirrors lies; digest and key are untrusted (`web`)."""
        if not is_mirror_key(self._mirror_secret, key):
            return None
        with self._database.read() as connection:
            return self._depot.shared(connection, 1, [digest]).get(digest)

    def _check_mirrors(self) -> bool:
        with self._database.read() as connection:
            samples = self._depot.shared(connection, SAMPLES)
            newest = [*self.mirrors.holders().urls][-SAMPLES:]
            held = self._depot.shared(connection, SAMPLES, newest) if newest else {}
        self.mirrors.check(samples, held)
        return False  # the next time is a pause away

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is; see `interface.Engine`."""
        since = self.now() - SEEN_WITHIN_S
        with self._database.read() as connection:
            return read_status(connection, name, since, self.scheduler.progress.find)

    def cost(self, names: Sequence[str]) -> Cost:
        """Return what workunits cost; see `interface.Costs`."""
        with self._database.read() as connection:
            return read_cost(connection, names)

    def check_database(self) -> None:
        """Ask the database for a row; see `interface.MeasuredEngine`."""
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
        self._mover.start()
        self._served = (validation, assimilator)
        self._round.start()
        if self.mirrors.nodes is not None:
            self.mirrors.nodes.start()
        if self.mirrors.urls or self.mirrors.nodes:
            self._checks.start()

    def close(self) -> None:
        """Stop moving workunits and close the database; see `interface.Engine`."""
        if self.mirrors.nodes is not None:
            self.mirrors.nodes.stop()
        self._checks.stop()
        self._round.stop()
        self._mover.close()
        self._database.close()

    def step(self, validation: Validation, assimilator: Assimilator) -> bool:
        """Move what can be moved; returns whether anything was. For one thread."""
        self.uploads.expire()
        moved, delivered = self._mover.step(validation, assimilator)
        return moved or delivered

    def _spot_check(self) -> bool:
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
        """Move workunits, again at once where more is due; trouble only slows it down."""
        return (
            self._served is not None
            and self.step(*self._served)
            and self._mover.goes_on
        )
