"""A stock BOINC server behind `interface.Engine`.

BOINC decides who gets which copy and when a copy is late; what a result is worth and what
an end means is asked of us, by scripts of BOINC's daemons that talk to this process
(`handover`). Everything that must not be lost is in rows before anybody is answered:
what was asked for (`creation`), what was decided (`ending`), what is undelivered. One
thread goes the rounds that BOINC does not (`chores`); it holds no state, so a crash at
any point loses nothing.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.errors import StoiloError, UsageError
from stoilo.executor.trust import parse_release_pack
from stoilo.executor.workdir import RELEASE
from stoilo.policies.levels import load_levels
from stoilo.server.engines.interface import OutcomeKind, WorkunitFile
from stoilo.server.engines.programs import check_programs
from stoilo.server.engines.specs import check_spec
from stoilo.server.engines.stock import boinctables
from stoilo.server.engines.stock.appversions import check_app_versions
from stoilo.server.engines.stock.assimilating import Listener
from stoilo.server.engines.stock.chores import Chores
from stoilo.server.engines.stock.claim import FolderLock, claim_project
from stoilo.server.engines.stock.creation import Creator, Draft, insert_drafts
from stoilo.server.engines.stock.database import Database
from stoilo.server.engines.stock.delivery import Delivery
from stoilo.server.engines.stock.ending import Endings
from stoilo.server.engines.stock.figures import read_figures
from stoilo.server.engines.stock.handover import Handover
from stoilo.server.engines.stock.jobs import stdin_line
from stoilo.server.engines.stock.judging import Judge
from stoilo.server.engines.stock.nudges import Nudges
from stoilo.server.engines.stock.renewal import Renewal
from stoilo.server.engines.stock.resultrows import Uploads, find_own
from stoilo.server.engines.stock.settings import Settings
from stoilo.server.engines.stock.staging import Stage, StagedFile, file_md5
from stoilo.server.engines.stock.statusview import read_settled, read_status
from stoilo.server.engines.stock.templates import (
    InputSlot,
    Template,
    input_template,
    result_template,
)
from stoilo.server.engines.stock.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from stoilo.server.engines.figures import EngineFigures
    from stoilo.server.engines.interface import (
        AppProgram,
        Assimilator,
        CodeSignKey,
        Validation,
        WorkunitSpec,
        WorkunitStatus,
    )
    from stoilo.server.engines.stock.project import StockProject

__all__ = ["StockEngine", "StockOptions"]

log = logging.getLogger(__name__)
_SECRET: Final = "secret"  # noqa: S105 - a row's name
_RELEASE: Final = "release"
_CREATE_AGAIN_S: Final = 10


@dataclass(frozen=True, slots=True)
class StockOptions:
    """Settings of one stock engine.

    Attributes:
        workers: calls of BOINC's scripts answered at a time.
        idle_s: pause of the rounds when nothing happens, s.
        listen_s: how often every workunit is looked at, s: for ends that nobody told of,
            and files that nobody needs.
        seen_within_s: a host counts as attached when it called within that time, s.
        owner: names the server whose tasks the project runs; empty: nobody's.
    """

    workers: int = 8
    idle_s: float = 1.0
    listen_s: int = 30
    seen_within_s: int = 600
    owner: str = ""


class StockEngine:
    """The engine of one project; see `interface.Engine`."""

    def __init__(
        self,
        project: StockProject,
        *,
        database_url: str = "",
        options: StockOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make our tables where they are missing.

        Args:
            project: as it lies on the disk.
            database_url: of its database; empty: as its configuration says.
            options: settings.
            clock: s since 1970.

        Raises:
            InternalError: ``STO-E003`` or ``STO-R110``: the database refuses, or is unsafe;
                ``STO-B095``: another server works on the project; ``STO-B007``.
            UsageError: ``STO-B096``: it is another server's.
        """
        self._project = project
        self._options = options or StockOptions()
        self._clock = clock
        self._lock = FolderLock(project.own)
        self._database = Database(database_url or project.database_url)
        self._settings = Settings(self._database)
        try:
            self._database.upgrade()
            claim_project(self._settings, self._options.owner)
            secret = self._load_secret()
        except StoiloError:
            self._release_all()
            raise
        self._tools = Tools(project)
        self._stage = Stage(project.download, project.config.fanout, secret)
        self._endings = Endings(self._database, project.own / "kept")
        self._nudges = Nudges(self._database)
        self._creator = Creator(self._database, self._tools)
        self._delivery = Delivery(self._database, self._endings, self.now)
        self._renewal = Renewal(project, self._database, self._nudges)
        self._chores = Chores(
            self._database, self._endings, self._nudges, self._tools, self.now
        )
        self._staging = threading.Lock()
        self._retained: frozenset[str] = frozenset()
        self._create_at = self._listen_at = 0
        self._renewed = ""
        self._release = self._load_release()
        self._assimilator: Assimilator | None = None
        self._listener: Listener | None = None
        self._handover: Handover | None = None
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def now(self) -> int:
        """Return the engine's time, s since 1970."""
        return int(self._clock())

    def create_workunits(self, specs: Sequence[WorkunitSpec]) -> None:
        """Store workunits in one durable step; see `interface.Engine`.

        They are made in BOINC before this returns, unless ``create_work`` fails: then
        that is tried again, and `status` says that they wait.
        """
        for spec in specs:
            check_spec(spec)
        self._check_apps({spec.app for spec in specs})
        with (
            self._staging
        ):  # no file goes between its staging and the row that needs it
            drafts = [self._draft(spec) for spec in specs]
            self._stage.sync()
            with self._database.write() as connection:
                insert_drafts(connection, drafts, self.now())
        self._create()
        self._wake.set()

    def cancel(self, name: str) -> None:
        """End a workunit unless it has ended; see `interface.Engine`."""
        with self._database.read() as connection:
            own = find_own(connection, name=name)
        if own is None:
            return
        if self._endings.end(own.row, OutcomeKind.CANCELLED, cancel=True):
            self._cancel()
            self._wake.set()

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is; see `interface.Engine`."""
        since = self.now() - self._options.seen_within_s
        with self._database.read() as connection:
            return read_status(connection, name, since)

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return the names whose outcome will not come; see `interface.Engine`."""
        with self._database.read() as connection:
            return read_settled(connection, names)

    def figures(self) -> EngineFigures:
        """Return what the project holds now; see `engines.figures.MeasuredEngine`."""
        with self._database.read() as connection:
            return read_figures(connection, self.now())

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on; see `interface.Engine`.

        Workunits made before get it in the rounds that follow (`renewal`).

        Raises:
            TrustError: ``STO-K013`` when it is no release.
        """
        parse_release_pack(bundle)
        file = WorkunitFile(
            RELEASE, hashlib.sha256(bundle).hexdigest(), bundle, sticky=True
        )
        with self._staging:
            staged = self._stage.add([file])[file.digest]
            self._stage.sync()
            text = f"{staged.name} {staged.size} {staged.md5}"
            self._settings.write(_RELEASE, text)
            self._release = staged
        self._wake.set()

    def set_programs(self, programs: Sequence[AppProgram], key: CodeSignKey) -> None:
        """Check that the project runs the release's programs; see `interface.Engine`.

        Raises:
            UsageError: ``STO-B008`` when it runs others: only an operator with the
                project's tools may change that (``stoilo boinc install``).
        """
        files = [file for one in programs for file in (one.launcher, one.verifier)]
        check_programs(
            programs,
            {file.digest: file_md5(file.source, file.digest) for file in files},
            key,
        )
        with self._database.read() as connection:
            levels = [level.name for level in load_levels()]
            check_app_versions(connection, levels, programs)

    def retain(self, digests: Collection[str]) -> None:
        """Keep input files of these digests between workunits (flavor archives)."""
        self._retained = frozenset(map(self._stage.name_of, digests))

    def start(self, validation: Validation, assimilator: Assimilator) -> None:
        """Begin to move workunits; see `interface.Engine`."""
        self.listen(validation, assimilator)
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._run, name="stoilo-engine", daemon=True
        )
        self._thread.start()

    def listen(self, validation: Validation, assimilator: Assimilator) -> None:
        """Answer BOINC's scripts, without the rounds; raises ``STO-B007``."""
        uploads = Uploads(self._project)
        judge = Judge(self._database, uploads, self._endings, validation, self.now)
        self._listener = Listener(self._database, self._endings, judge, self.now)
        self._assimilator = assimilator
        self._delivery.retry_all()
        self._handover = Handover(
            self._project.socket,
            judge,
            self._listener,
            self._options.workers,
        )
        self._handover.open()

    def close(self) -> None:
        """Stop moving workunits and close the database; see `interface.Engine`."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._handover is not None:
            self._handover.close()
            self._handover = None
        self._release_all()

    def _release_all(self) -> None:
        """Close the database, and let another server have the project."""
        self._database.close()
        self._lock.release()

    def step(self) -> bool:
        """Go one round; returns whether there was anything to do. For one thread."""
        did = self._create_if_due()
        did |= self._cancel()
        did |= self._chores.end_admissions()
        did |= self._chores.pay_debts()
        did |= self._chores.ask_again()
        did |= self._renew()
        if self._assimilator is not None:
            did |= self._delivery.deliver(self._assimilator)
        if self.now() >= self._listen_at:
            self._listen_at = self.now() + self._options.listen_s
            did |= self._look_around()
        return did

    def _look_around(self) -> bool:
        """Do what means looking at every workunit."""
        did = False
        if self._listener is not None:
            did |= self._listener.hear_what_was_missed()
        with self._staging:
            return did | self._chores.close_workunits(self._remove)

    def _renew(self) -> bool:
        """Give some open workunits the newest release until all have it."""
        release = self._release
        if release is None or release.name == self._renewed:
            return False
        did = self._renewal.renew(release)
        if not did:
            self._renewed = release.name
        return did

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                busy = self.step()
            except Exception:  # a database that is away comes back
                log.exception("a round was cut short")
                busy = False
            if not busy:
                self._wake.wait(self._options.idle_s)
                self._wake.clear()

    def _create(self) -> bool:
        """Make what has no BOINC row; what fails is due again in a while."""
        try:
            return self._creator.flush()
        except StoiloError as error:
            log.warning("create_work will be called again: %s", error)
            self._create_at = self.now() + _CREATE_AGAIN_S
            return False

    def _create_if_due(self) -> bool:
        return self._create() if self.now() >= self._create_at else False

    def _cancel(self) -> bool:
        with self._creator.turn:  # what is being made just now cannot be cancelled
            return self._chores.cancel()

    def _draft(self, spec: WorkunitSpec) -> Draft:
        """Stage a workunit's files; return what its row will say."""
        staged = self._stage.add(spec.files)
        names = [staged[file.digest].name for file in spec.files]
        slots = [InputSlot(file.open_name, file.sticky) for file in spec.files]
        release = self._release
        if release is not None:
            names.append(release.name)
            slots.append(InputSlot(RELEASE, sticky=True))
        inputs = input_template(spec, tuple(slots))
        outputs = result_template(spec.result_max_bytes)
        for template in (inputs, outputs):
            self._write_template(template)
        draft = Draft(
            spec,
            tuple(names),
            inputs.name,
            outputs.name,
            release.name if release is not None else "",
        )
        stdin_line(draft.job())  # refuses what BOINC could not be told
        return draft

    def _write_template(self, template: Template) -> None:
        self._stage.write(self._project.templates / template.name, template.text)

    def _check_apps(self, names: set[str]) -> None:
        """Raise ``STO-B009`` for an app that the project has not."""
        table = boinctables.apps
        with self._database.read() as connection:
            found = set(
                connection.scalars(select(table.c.name).where(table.c.name.in_(names)))
            )
        if missing := names - found:
            raise UsageError(
                "STO-B009", f"the project has no app {min(missing)[:32]!r}"
            )

    def _remove(self, names: Collection[str]) -> None:
        current = {self._release.name} if self._release is not None else set()
        self._stage.remove(sorted(set(names) - self._retained - current))

    def _load_secret(self) -> bytes:
        """Return the project's secret for files' names, drawn at the first start."""
        self._settings.write(_SECRET, secrets.token_hex(32), replace=False)
        return bytes.fromhex(self._settings.read(_SECRET))

    def _load_release(self) -> StagedFile | None:
        text = self._settings.read(_RELEASE)
        if not text:
            return None
        name, size, md5 = text.split()
        return StagedFile(name, int(size), md5)
