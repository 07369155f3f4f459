"""A stock BOINC server behind `interface.Engine`.

BOINC decides who gets which result and when a result is late; what a result is worth and what
an end means is asked of us, by scripts of BOINC's daemons that talk to this process
(`script_server`). Everything that must not be lost is in rows before anybody is answered:
what was asked for (`creator`), what was decided (`outcomes`), what is undelivered. Some
threads go the rounds that BOINC does not (`rounds`); they hold no state that matters, so
a crash at any point loses nothing.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.background import Repeater
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.levels import load_levels
from stoilo.server.engines.questions import take_names
from stoilo.server.engines.status import SEEN_WITHIN_S
from stoilo.server.engines.stock.app_versions import (
    check_app_versions,
    check_signatures,
)
from stoilo.server.engines.stock.assimilator import ScriptAssimilator
from stoilo.server.engines.stock.creator import Creator, insert_drafts
from stoilo.server.engines.stock.input_files import InputFiles, renew_release
from stoilo.server.engines.stock.kept import KeptResults
from stoilo.server.engines.stock.outcomes import Outcomes
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import find_own
from stoilo.server.engines.stock.project.database import (
    Database,
    FolderLock,
    Settings,
    claim_project,
)
from stoilo.server.engines.stock.rounds import (
    AT_ONCE,
    CleanUp,
    ask_again,
    cancel_untold,
    end_admissions,
    pay_debts,
    stray_outcomes,
)
from stoilo.server.engines.stock.script_server import ScriptServer
from stoilo.server.engines.stock.status import Figures, read_settled, read_status
from stoilo.server.engines.stock.validator import ScriptValidator
from stoilo.server.engines.stock.verdicts import hasten
from stoilo.server.engines.workunits import check_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import ColumnElement

    from stoilo.server.engines.interface import (
        Assimilator,
        EngineFigures,
        Validation,
        WorkunitStatus,
    )
    from stoilo.server.engines.programs import AppProgram, CodeSignKey
    from stoilo.server.engines.stock.project.directory import StockProject
    from stoilo.server.engines.workunits import WorkunitSpec


log = logging.getLogger(__name__)
_CREATE_AGAIN_S: Final = 10
WORKERS: Final = 8  # calls of BOINC's scripts answered at a time


@dataclass(frozen=True, slots=True)
class Pauses:
    """How often the engine looks by itself, s."""

    idle_s: float = 1.0  # when there was nothing to do
    # at every workunit: for ends that nobody told of, and files that nobody needs
    listen_s: int = 30


class StockEngine:
    """The engine of one project; see `interface.Engine`."""

    def __init__(
        self,
        project: StockProject,
        *,
        database_url: str = "",
        owner: str = "",
        pauses: Pauses | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make our tables where they are missing.

        Args:
            project: as it lies on the disk.
            database_url: of its database; empty: as its configuration says.
            owner: names the server whose tasks the project runs; empty: nobody's.
            pauses: of its rounds.
            clock: s since 1970.

        Raises:
            InternalError: ``STO-R030`` or ``STO-R110``: the database refuses, or is unsafe;
                ``STO-B095``: another server works on the project; ``STO-U006``.
            UsageError: ``STO-B095``: it is another server's.
        """
        self._project = project
        self._pauses = pauses or Pauses()
        self._clock = clock
        self._lock = FolderLock(project.own)
        self._database = Database(database_url or project.database_url)
        self._settings = Settings(self._database)
        try:
            self._database.upgrade()
            claim_project(self._settings, owner)
            self._inputs = InputFiles(project, self._settings)
        except StoiloError:
            self._release_all()
            raise
        self._outcomes = Outcomes(self._database, KeptResults(project), self.now)
        self._creator = Creator(self._database, project, self.now)
        # names of workunits of which there is more to say
        self._told: SimpleQueue[str] = SimpleQueue()
        self._clean_up = CleanUp(self._database, self.now)
        self._figures = Figures(self._database, self.now)
        self._swept = False
        self._create_at = self._listen_at = self._purge_at = 0
        self._assimilator: Assimilator | None = None
        self._script_assimilator: ScriptAssimilator | None = None
        self._script_server: ScriptServer | None = None
        self._rounds = self._make_rounds()

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
        with self._inputs.turn:
            drafts = self._inputs.draft(specs)
            with self._database.write() as connection:
                insert_drafts(connection, drafts, self.now())
        self._create_if_due()
        self._wake()

    def cancel(self, *names: str) -> None:
        """End workunits unless they have ended; see `interface.Engine`."""
        with self._database.read() as connection:
            found = [find_own(connection, name=name) for name in names]
        ended = self._outcomes.cancel([own.row for own in found if own is not None])
        if ended:
            some = tables.workunits.c.id.in_(ended[:AT_ONCE])  # as far as that is quick
            self._tell_cancelled(some)
            self._wake()

    def ask_again(self, name: str) -> None:
        """Take it that a workunit's validators have run; see `interface.Engine`."""
        self._told.put(name)
        self._wake()

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is; see `interface.Engine`."""
        since = self.now() - SEEN_WITHIN_S
        with self._database.read() as connection:
            return read_status(connection, name, since)

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return the names whose outcome will not come; see `interface.Engine`."""
        with self._database.read() as connection:
            return read_settled(connection, names)

    def figures(self) -> EngineFigures:
        """Return what the project holds now; see `engines.figures.MeasuredEngine`."""
        return self._figures.read()

    def check_database(self) -> None:
        """Ask the database for a row; see `engines.figures.MeasuredEngine`."""
        self._settings.read("release")  # whatever it says

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on; see `interface.Engine`.

        Workunits made before get it in the rounds that follow.

        Raises:
            TrustError: ``STO-K013`` when it is no release.
        """
        self._inputs.set_release(bundle)
        self._wake()

    def set_programs(self, programs: Sequence[AppProgram], key: CodeSignKey) -> None:
        """Check that the project runs the release's programs; see `interface.Engine`.

        Raises:
            UsageError: ``STO-B008`` when it runs others: only an operator with the
                project's tools may change that (``stoilo boinc install``).
        """
        check_signatures(programs, key)
        with self._database.read() as connection:
            levels = [level.name for level in load_levels()]
            check_app_versions(connection, levels, programs)

    def retain(self, digests: Collection[str]) -> None:
        """Keep input files of these digests between workunits (flavor archives)."""
        self._inputs.retain(digests)

    def start(self, validation: Validation, assimilator: Assimilator) -> None:
        """Begin to move workunits; see `interface.Engine`."""
        self.listen(validation, assimilator)
        for each in self._rounds:
            each.start()

    def listen(self, validation: Validation, assimilator: Assimilator) -> None:
        """Answer BOINC's scripts, without the rounds; raises ``STO-U006``."""
        validator = ScriptValidator(
            self._database, self._outcomes, validation, self.now
        )
        self._script_assimilator = ScriptAssimilator(
            self._database, self._outcomes, validator, self.now
        )
        self._assimilator = assimilator
        self._outcomes.retry_all()
        self._script_server = ScriptServer(
            self._project.socket,
            validator,
            self._script_assimilator,
            WORKERS,
        )

    def close(self) -> None:
        """Stop moving workunits and close the database; see `interface.Engine`."""
        for each in self._rounds:
            each.stop()
        if self._script_server is not None:
            self._script_server.close()
            self._script_server = None
        self._release_all()

    def _release_all(self) -> None:
        """Close the database, and let another server have the project."""
        self._database.close()
        self._lock.release()

    def step(self) -> bool:
        """Go one round; returns whether there was anything to do. For one thread."""
        return sum(each.go() for each in self._rounds) > 0

    def _make_rounds(self) -> tuple[Repeater, ...]:
        """Return what goes on side by side: what may be slow holds nothing else up."""
        rounds = (
            ("tools", (self._create_if_due, self._tell_cancelled)),
            (
                "rounds",
                (
                    lambda: end_admissions(self._database, self._outcomes, self.now()),
                    lambda: pay_debts(self._database),
                    self._hear_answers,
                    lambda: ask_again(self._database, self.now()),
                ),
            ),
            ("delivery", (self._deliver,)),
            (
                "housekeeping",
                (self._renew, self._look_around, self._purge, self._sweep),
            ),
        )
        return tuple(
            Repeater(f"stoilo-{name}", chores, self._pauses.idle_s)
            for name, chores in rounds
        )

    def _wake(self) -> None:
        for each in self._rounds:
            each.wake()

    def _deliver(self) -> bool:
        if self._assimilator is None:
            return False
        return self._outcomes.deliver(self._assimilator)

    def _look_around(self) -> bool:
        """Do what means looking at every workunit, from time to time."""
        if self._script_assimilator is None or self.now() < self._listen_at:
            return False
        self._listen_at = self.now() + self._pauses.listen_s
        did = self._script_assimilator.hear_what_was_missed()
        with self._inputs.turn:
            return self._clean_up.close(self._inputs.remove) or did

    def _purge(self) -> bool:
        if self.now() < self._purge_at:
            return False
        did = self._clean_up.purge()
        if not did:
            self._purge_at = self.now() + self._pauses.listen_s
        return did

    def _sweep(self) -> bool:
        if self._swept or self._script_assimilator is None:
            return False
        self._inputs.remove_strays(self._database)
        kept = stray_outcomes(self._database, self._outcomes.kept.folder)
        for row in kept:
            self._outcomes.kept.forget(row)
        self._swept = True
        return bool(kept)

    def _renew(self) -> bool:
        release = self._inputs.release
        if release is None:
            return False
        return renew_release(self._project, self._database, release)

    def _create_if_due(self) -> bool:
        """Make what has no BOINC row; after a failure of the tool in a while."""
        if self.now() < self._create_at:
            return False
        try:
            return self._creator.flush()
        except StoiloError as error:
            log.warning("create_work will be called again: %s", error)
            self._create_at = self.now() + _CREATE_AGAIN_S
            return False

    def _tell_cancelled(self, *which: ColumnElement[bool]) -> bool:
        """Tell BOINC of cancelled workunits: not of what is being made just now."""
        if not self._creator.turn.acquire(blocking=False):
            return False
        try:
            return cancel_untold(self._database, self.now(), *which)
        finally:
            self._creator.turn.release()

    def _hear_answers(self) -> bool:
        """Have questions put anew whose validators have run, as `ask_again` was told."""

        def put(names: set[str]) -> None:
            with self._database.write() as connection:
                hasten(connection, names)

        return take_names(self._told, AT_ONCE, put)

    def _check_apps(self, names: set[str]) -> None:
        """Raise ``STO-B008`` for an app that the project has not."""
        table = boinc_tables.apps
        with self._database.read() as connection:
            found = set(
                connection.scalars(select(table.c.name).where(table.c.name.in_(names)))
            )
        if missing := names - found:
            raise UsageError(
                "STO-B008", f"the project has no app {min(missing)[:32]!r}"
            )
