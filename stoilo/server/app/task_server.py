"""Wiring: the parts of a server, built in the order of trust and joined; it decides nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import select
from starlette.routing import BaseRoute

from stoilo.audit.format.facts import OperatorAct
from stoilo.audit.log.side import SideStore
from stoilo.core.errors import StoiloError
from stoilo.core.levels import load_levels
from stoilo.core.libraries import load_libraries
from stoilo.policies.jailed import GATE_JOB, Gate
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from stoilo.sandbox.process.supervisor import Jail
from stoilo.server.admission.blobs import BlobStore
from stoilo.server.admission.fairness import FairTurns
from stoilo.server.admission.gatekeeper import Gatekeeper
from stoilo.server.admission.outdated import OutdatedWork, Terms
from stoilo.server.admission.pipeline import AdmissionPipeline
from stoilo.server.admission.statements import StatementWriter
from stoilo.server.admission.submission import READING, Submissions
from stoilo.server.admission.workunits import WorkunitWriter
from stoilo.server.api.accounts import AccountService
from stoilo.server.api.progress import ProgressService
from stoilo.server.api.service import ReviewService, TaskService
from stoilo.server.api.tasks import TaskDesk
from stoilo.server.app.audit_log import AuditLog, open_log
from stoilo.server.app.engine import WorkEngine, open_engine
from stoilo.server.app.trust import ProjectTrust
from stoilo.server.db import schema
from stoilo.server.engines.workunits import Replication, parse_replication
from stoilo.server.http.web_server import PublicPlace
from stoilo.server.log.leaves import LeafBook
from stoilo.server.log.outbox import note_act
from stoilo.server.log.ports import ProjectFacts
from stoilo.server.log.refusals import RefusalBook
from stoilo.server.log.sightings import Sightings
from stoilo.server.reviews.book import WAIT_S, ReviewBook
from stoilo.server.reviews.desk import ReviewDesk
from stoilo.server.revocation.wishes import FOLDER
from stoilo.server.validation.assimilation import OutcomeKeeper
from stoilo.server.validation.docket import Docket
from stoilo.server.validation.results import ResultValidation
from stoilo.server.validation.validators import (
    ValidatorJails,
    Validators,
)

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from stoilo.executor.verifier.host_verifier import JailRunner
    from stoilo.executor.verifier.workunit import ResultHeader
    from stoilo.policies.policy import Policy
    from stoilo.server.admission.draft import (
        FlavorLookup,
        HeldLibraries,
        LevelLookup,
        LibraryLookup,
    )
    from stoilo.server.admission.gatekeeper import Judge
    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.db.store import Store
    from stoilo.server.engines.embedded.accounts.roster import Roster
    from stoilo.server.engines.interface import Engine
    from stoilo.server.engines.workunits import WorkunitFile
    from stoilo.server.log.ports import AdmissionSigner, Log
    from stoilo.server.release.project import Project
    from stoilo.server.watching.watch import ServerWatch


LOGGER = logging.getLogger(__name__)
SALTS_S = 60.0  # accounts' salts are read again after this time


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that the server talks to, real or (in tests) standing in."""

    log: Log  # the audit log's one writer
    signer: AdmissionSigner  # admits statements
    engine: Engine  # issues workunits
    judge: Judge  # the gate
    policy: Policy  # in force
    # validators' jail by level name and import names of libraries
    jail_of: Callable[[str, tuple[str, ...]], JailRunner]
    levels: LevelLookup  # level by name
    flavors: FlavorLookup  # flavor id by (wish, level, libraries)
    facts: Callable[[], ProjectFacts]  # of the project, at this moment
    clock: Callable[[], int]  # seconds since 1970
    # admission time → the file of revocations for its workunit
    revocations: Callable[[int], bytes]
    terms: Callable[[], Terms] = Terms  # what volunteers accept at this moment
    # the store of records and published sources beside the log
    side: SideStore = field(default_factory=SideStore.in_memory)
    # keeps the checkpoint that a result's executor saw
    seen: Callable[[ResultHeader], None] = lambda header: None  # noqa: ARG005 - nothing is kept
    # id of a flavor → its archive as an input file, None for none
    archives: Callable[[str], WorkunitFile | None] = lambda _flavor: None
    held_libraries: HeldLibraries = tuple  # those that flavors in force hold
    # digests of a flavor's libraries that an admission at a level names
    libraries_of: LibraryLookup = lambda _flavor, _level: ()
    # how the results of a level's tasks are spread
    replication: Callable[[str], Replication] = lambda _level: Replication()


class TaskServer:
    """The assembled server: a gRPC service, an admission pipeline, an engine's ears."""

    def __init__(
        self,
        store: Store,
        blob_directory: Path,
        around: Dependencies,
        leaves: LeafBook | None = None,
        review_wait_s: int = WAIT_S,
    ) -> None:
        clock = around.clock
        self.store, self.side = store, around.side
        self._engine = around.engine
        self._salts: dict[int, str] = {}
        self._salts_read = time.monotonic()
        self.blobs = BlobStore(blob_directory, store, clock())
        self.docket = Docket(Validators(around.jail_of), around.engine.ask_again)
        validation = ResultValidation(store, self.docket, around.seen)
        self.leaves = leaves or LeafBook(store, around.side, around.facts, clock)
        self._log = around.log
        self._policy_digest, self._clock = around.policy.digest, clock
        gatekeeper = Gatekeeper(
            around.judge, store, clock, around.policy, around.held_libraries
        )
        self.reviews = ReviewBook(
            store,
            lambda: around.terms().reviewers,
            self._salt_of,
            needs_review=around.policy.needs_review,
            clock=clock,
            wait_s=review_wait_s,
        )
        self.pipeline = AdmissionPipeline(
            store,
            around.log,
            around.signer,
            around.engine,
            statements=StatementWriter(
                around.facts, around.levels, self._salt_of, around.libraries_of
            ),
            workunits=WorkunitWriter(
                store,
                self.blobs,
                around.revocations,
                around.archives,
                around.replication,
            ),
            leaves=self.leaves,
            review=gatekeeper.review_again,
            reviews=self.reviews,
            clock=clock,
            outdated=OutdatedWork(store, around.terms),
            taken_back=self.docket.drop,
        )
        self.review_desk = ReviewDesk(
            store,
            self.reviews,
            salt_of=self._salt_of,
            wake=self.pipeline.wake,
            clock=clock,
            judge=gatekeeper.judge_again,
        )
        self.review_service = ReviewService(store, self.review_desk, clock)
        self.account_service = AccountService(store, around.policy, clock)
        self.progress_service = ProgressService(store, around.engine, clock)
        self.validation = validation
        self.keeper = OutcomeKeeper(
            store,
            validation,
            self.blobs,
            retry=self.pipeline.attempts.retry,
            clock=clock,
            ended=self._tell_ended,
        )
        turns = FairTurns(READING)
        self.submissions = Submissions(
            store,
            gatekeeper,
            RefusalBook(store, clock),
            around.policy,
            levels=around.levels,
            flavors=around.flavors,
            clock=clock,
            stored=partial(self.pipeline.wake, "admission-log"),
            turns=turns,
        )
        self.desk = TaskDesk(
            store,
            around.engine,
            clock=clock,
            trouble=lambda: str(self.pipeline.trouble or ""),
            wake=self.pipeline.wake,
            policy=around.policy,
        )
        self.service = TaskService(
            store,
            self.submissions,
            self.desk,
            self.blobs,
            around.policy,
            clock,
            turns,
        )

    def _tell_ended(self) -> None:
        self.service.ends.look()

    def _salt_of(self, account_id: int) -> str:
        """Return the account's salt; only a retention command renews it, when unused."""
        if time.monotonic() - self._salts_read > SALTS_S:
            self._salts, self._salts_read = {}, time.monotonic()
        if account_id not in self._salts:
            table = schema.account
            with self.store.read() as connection:
                query = select(table.c.salt).where(table.c.id == account_id)
                self._salts[account_id] = str(connection.scalar(query))
        return self._salts[account_id]

    @property
    def log(self) -> Log:
        """The audit log's one writer."""
        return self._log

    def start(self) -> None:
        """Let the engine and the pipeline move; left-overs of a crash come first."""
        versions = {f"level/{level.name}": level.digest for level in load_levels()}
        versions |= {f"library/{one.name}": one.digest for one in load_libraries()}
        versions |= {"policy": self._policy_digest, "language": LANGUAGE_DIGEST}
        with self.store.write() as connection:
            act, now = OperatorAct.SERVER_STARTED, self._clock()
            note_act(connection, act, now, versions=versions)
        self._engine.start(self.validation, self.keeper)
        self.pipeline.start()

    def stop(self) -> None:
        """Stop moving; everything acknowledged is on the disk already."""
        # The engine last: the pipeline's steps in progress still need it.
        self.pipeline.stop()
        self._engine.close()
        self.docket.close()
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Log what still waits, the stop last; what cannot be waits in the outbox."""
        try:
            # Before the stop is noted: it is to be the last thing that the log tells.
            self.leaves.flush_refusals()
            with self.store.write() as connection:
                act, now = OperatorAct.SERVER_STOPPED, self._clock()
                note_act(connection, act, now, versions={})
            self.leaves.append_all(self._log)
        except StoiloError as error:
            LOGGER.warning("the last events wait for the next start: %s", error)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """One server without its network."""

    tasks: TaskServer  # from a request to an outcome
    work: WorkEngine  # the engine, and what stands around it
    trust: ProjectTrust  # release and revocations
    log: AuditLog  # the audit log


@dataclass(frozen=True, slots=True)
class ServerPlace(PublicPlace):
    """What a face for known people may use besides: it asks as their calls would."""

    tasks: TaskServer  # each call checks whose it is
    watch: ServerWatch  # figures, readiness, release
    config: ServerConfig  # in force
    roster: Roster | None  # volunteers and hosts, None with a stock project


# Returns the routes of one face; called once, before the server listens
Face = Callable[[ServerPlace], Sequence[BaseRoute]]


def clock() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def assemble(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    project: Project,
    store: Store,
) -> ServerParts:
    """Open log, engine and jails, and wire them; `stack` closes them."""
    log = open_log(config.data, project, store, stack)
    # The gate in a jailed child of level pure, one warm zygote.
    gate_jail, jails = Jail(load_level("pure"), GATE_JOB), ValidatorJails()
    stack.callback(gate_jail.close)
    stack.callback(jails.close)
    work = open_engine(config, home, project.root.log_vkey)
    trust = ProjectTrust(
        project,
        policy,
        store,
        log,
        work.engine,
        wishes=home.part(FOLDER),
        clock=clock,
        life_s=config.admission_life_s,
        refusal_interval_s=config.refusal_interval_s,
    )
    around = Dependencies(
        log=log.writer,
        signer=project.client,
        engine=work.engine,
        judge=Gate(gate_jail),
        policy=policy,
        jail_of=jails.of,
        levels=trust.levels,
        flavors=trust.choose_flavor,
        facts=trust.facts,
        clock=clock,
        revocations=trust.revocations.current,
        terms=trust.terms,
        side=log.side,
        seen=Sightings(log.seen, trust.log_policy).record,
        archives=trust.archives,
        held_libraries=trust.held_libraries,
        libraries_of=trust.libraries_of,
        replication=parse_replication(config.homogeneous, config.adaptive).of,
    )
    tasks = TaskServer(
        store,
        home.part("blobs"),
        around,
        leaves=trust.leaves,
        review_wait_s=config.review_wait_s,
    )
    return ServerParts(tasks, work, trust, log)
