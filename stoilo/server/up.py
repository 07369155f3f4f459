"""`stoilo up`: one server on its engine, its signer and its local volunteers, in order.

Start order is trust order: directory lock, development root, signer, log (checked; an
inconsistent one refuses), database, engine, pipeline, network, volunteers. Only when all
of it runs is the one line printed. Stop order is the reverse.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from stoilo.audit.pacing import SequencerSettings
from stoilo.audit.seen import SeenStore
from stoilo.audit.sequencer import Sequencer
from stoilo.audit.side import SideStore
from stoilo.audit.witness.client import Cosigner
from stoilo.core.errors import DeniedError, UsageError
from stoilo.executor.trust import ReleaseFiles
from stoilo.flavors.manifest import shipped_flavors
from stoilo.flavors.tree import platform_name
from stoilo.policies.levels import load_level, load_levels
from stoilo.server import auth
from stoilo.server.allocator import give_large_blocks_back
from stoilo.server.assembly import (
    Neighbours,
    TaskServer,
    bind_grpc,
    set_serving,
    tell_health,
)
from stoilo.server.chores import Chore
from stoilo.server.config import ServerConfig, parse_address
from stoilo.server.datadir import ConnectionFile, DataDir, claim_directory
from stoilo.server.faces import AUDIT_PAGES, Face, PublicPlace
from stoilo.server.flavorchoice import (
    FlavorFiles,
    ReleasedLevels,
    choose_flavor,
    kept_archives,
)
from stoilo.server.keyevents import facts_in_force, note_changes, revoked_keys
from stoilo.server.leaves import LeafBook, log_changes
from stoilo.server.logfiles import log_routes
from stoilo.server.logmemory import check_log_size
from stoilo.server.neighbours import (
    JailedJudge,
    ValidatorJails,
    facts_of,
    load_policy,
)
from stoilo.server.programs import offer_programs
from stoilo.server.release import REFRESH_S, Project, Release, start_project
from stoilo.server.releasefiles import release_routes
from stoilo.server.releaselog import ReleaseProof, read_transcript
from stoilo.server.releasestatus import ReleaseWatch
from stoilo.server.replication import parse_replication
from stoilo.server.revocations import RevocationIssuer
from stoilo.server.seenfiles import seen_routes
from stoilo.server.sidefiles import side_routes
from stoilo.server.sightings import Sightings
from stoilo.server.store import Store
from stoilo.server.tls import LOCAL_NAMES, ensure_tls
from stoilo.server.watching.admissions import CountedSigner
from stoilo.server.watching.calls import MeteredCalls
from stoilo.server.watching.lookout import Lookout, WatchedParts
from stoilo.server.webserver import (
    GRACE_S,
    allow_open_files,
    bracket,
    cannot_bind,
    http_url,
    listen,
    stop_web,
    wait_until_started,
    web_server,
)
from stoilo.server.withdrawals import FOLDER
from stoilo.server.withdrawn import terms_of
from stoilo.server.workengine import WorkEngine, open_engine
from stoilo.signer.checkpoints import CheckpointSigner
from stoilo.signer.client import SignerClient

if TYPE_CHECKING:
    from stoilo.executor.release import TrustedRelease
    from stoilo.policies.policy import Policy
    from stoilo.server.ports import AdmissionSigner
    from stoilo.server.volunteers import LocalVolunteers

__all__ = ["UpLine", "assemble", "run_server"]

LOGGER = logging.getLogger(__name__)
LOCAL_RESEARCHER = "local"
WATCH_S = 0.5
BLOCKING_THREADS = 32
"""For calls that wait for a disk or a jail, whatever number of processors there is."""
WITNESSED_INTERVAL_S = 0.2
"""Least time between two checkpoints of a log with witnesses, s."""


class UpLine(msgspec.Struct, frozen=True):
    """The one stdout line of `stoilo up` (design §7)."""

    grpc: str
    http: str
    project: str | None
    token: str
    connection: str
    volunteers: int


async def run_server(
    config: ServerConfig, ready: Callable[[UpLine], None], faces: Sequence[Face] = ()
) -> None:
    """Run until SIGTERM or SIGINT; calls `ready` once everything answers.

    Args:
        config: the settings in force.
        ready: gets the one line.
        faces: pages to mount beside the project's own.

    Raises:
        UsageError: ``STO-R073`` an address beyond loopback without TLS.
        InternalError: ``STO-R070``, ``STO-R071``, ``STO-R074``, ``STO-K020``.
        TrustError: ``STO-L04x`` the log is inconsistent, ``STO-K…`` the root.
    """
    check_addresses(config)
    give_large_blocks_back()
    allow_open_files()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(BLOCKING_THREADS, "blocking"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        home = claim_directory(config.data)
        stack.callback(home.lock.close)
        await _run(config, home, stack, stop, ready, faces)


def check_addresses(config: ServerConfig) -> None:
    """Raise ``STO-R073`` when volunteers beyond this machine would get no TLS."""
    http = parse_address(config.http)
    if not http.loopback and not (config.http_certificate and config.http_key):
        raise UsageError(
            "STO-R073",
            f"{http} is not a loopback address and has no TLS",
            hint="give a certificate and key for HTTP, or bind 127.0.0.1",
        )


async def _run(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    stop: asyncio.Event,
    ready: Callable[[UpLine], None],
    faces: Sequence[Face],
) -> None:
    policy = load_policy(config.policy)
    store = Store.open(config.database_url)
    stack.callback(store.close)
    project = start_project(config, home, stack, policy, store)
    signer = CountedSigner(project.client)
    server, work, release, revocations, log = assemble(
        config, home, stack, policy, project, store, signer
    )
    watch = ReleaseWatch(
        project.root.directory, release.trust, _clock, project.check_certified
    )
    parts = WatchedParts(
        server.store,
        work.engine,
        log,
        signer,
        project.socket,
        release,
        watch,
        server.docket,
    )
    lookout = Lookout.over(home, parts, _clock)
    listener = listen(config.http)
    http = http_url(config, listener)
    url = config.project_url or http
    token = _local_token(home, server.store)
    tls = ensure_tls(home.part("tls"), datetime.now(UTC), _tls_names(config))
    try:
        grpc_server, port = bind_grpc(
            server.service,
            config.grpc,
            tls,
            server.review_service,
            (MeteredCalls(lookout.sources.rpc),),
        )
    except RuntimeError as error:
        raise cannot_bind(config.grpc) from error
    grpc_address = parse_address(config.grpc)
    place = f"{bracket(grpc_address.host)}:{port}"
    server.start()
    stack.callback(server.stop)
    await grpc_server.start()
    stack.push_async_callback(grpc_server.stop, GRACE_S)
    pages = AUDIT_PAGES if faces else ""
    path = urlsplit(url).path
    face = work.face(url, path, pages)
    log_directory = config.data / "audit" / "log"
    face.routes.extend(log_routes(log_directory))
    face.routes.extend(side_routes(log_directory, server.side))
    for more in faces:
        face.routes.extend(more(PublicPlace(config.data, url)))
    face.routes.extend(seen_routes(config.data, stack))
    root = project.root
    face.routes.extend(release_routes(root.directory, watch.status, root.proofs))
    face.routes.extend(lookout.routes())
    web = web_server(config, lookout.metered(face, path))
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    stack.push_async_callback(stop_web, web, serving)
    volunteers = _start_volunteers(work, config, home, url, project, stack)
    master = work.project_url(url)
    content = ConnectionFile(place, http, master, token, tls.ca.decode())
    home.write_connection(content)
    await wait_until_started(web, serving)
    await lookout.serve(config, home, stack)
    await lookout.start(stack, lambda ready: tell_health(grpc_server, ready))
    ready(UpLine(place, http, master, token, str(home.connection), config.volunteers))
    chores = _chores(project, release, revocations, server, watch)
    await _watch(stop, chores, volunteers)
    await set_serving(grpc_server, serving=False)


def _start_volunteers(
    work: WorkEngine,
    config: ServerConfig,
    home: DataDir,
    url: str,
    project: Project,
    stack: AsyncExitStack,
) -> LocalVolunteers | None:
    """Start this machine's own volunteers, if the engine has any."""
    volunteers = work.volunteers(config.volunteers, home, url, project.root.root_file)
    if volunteers is not None:
        volunteers.start()
        # in a thread: while they end, the loop still answers their last calls
        stack.push_async_callback(asyncio.to_thread, volunteers.stop)
    return volunteers


def assemble(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    project: Project,
    store: Store,
    signer: AdmissionSigner | None = None,
) -> tuple[TaskServer, WorkEngine, Release, RevocationIssuer, Sequencer]:
    """Open log, database, engine and jails, and wire them.

    `signer` is asked in place of the project's own client, if given.

    A fresh revocation statement is in force before anything can be issued.
    """
    checkpoints = SignerClient(project.socket, revive=project.signer.ensure)
    stack.callback(checkpoints.close)
    log = Sequencer.open(
        config.data,
        project.root.origin,
        CheckpointSigner(checkpoints, config.data / "audit" / "log"),
        policy=project.witnesses,
        cosign=_cosigner(project, stack),
        settings=_pace(project),
    )
    stack.callback(log.close)
    check_log_size(log.size, checkpoints.ping().size, store)
    side = SideStore.open(config.data)
    stack.callback(side.close)
    judge, jails = JailedJudge(policy), ValidatorJails()
    stack.callback(judge.close)
    stack.callback(jails.close)
    work = open_engine(config, home, project.root.log_vkey)
    engine = work.engine
    life_s = config.admission_life_s

    platform = platform_name()

    def record(files: ReleaseFiles, trust: TrustedRelease) -> None:
        """Log what has changed before anybody here relies on it."""
        now = _clock()
        standing = facts_in_force(
            trust,
            files,
            now,
            policy_digest=policy.digest,
            levels=load_levels(),
            flavors=shipped_flavors(),
            transcript=read_transcript(project.root.directory),
        )
        if note_changes(store, standing, now, revoked_keys(trust)):
            log_changes(leaves, log, facts_of(lambda: trust, _clock, life_s))
        engine.retain(kept_archives(trust, platform))
        offer_programs(engine, project.root.directory, trust)

    def trust_now() -> TrustedRelease:
        return release.trust()

    leaves = LeafBook(
        store,
        side,
        facts_of(trust_now, _clock, life_s),
        _clock,
        config.refusal_interval_s,
    )
    leaves.refill()
    release = Release(project, engine, record)
    seen = SeenStore.below(config.data)
    stack.callback(seen.close)
    revocations = RevocationIssuer(
        home.part(FOLDER), log, project.client, release.trust, _clock, leaves.adopt
    )
    revocations.upkeep()
    around = Neighbours(
        log=log,
        signer=signer or project.client,
        engine=engine,
        judge=judge,
        policy=policy,
        jail_of=jails.of,
        levels=ReleasedLevels(release.trust) if project.root.released else load_level,
        flavors=lambda wish, level: choose_flavor(wish, level, revocations.in_force()),
        facts=facts_of(revocations.in_force, _clock, life_s),
        clock=_clock,
        revocations=revocations.current,
        withdrawn=lambda: terms_of(revocations.in_force()),
        log_policy=lambda: release.trust().log_policy,
        reviewers=lambda: revocations.in_force().reviewers,
        side=side,
        seen=Sightings(seen, lambda: release.trust().log_policy).record,
        archives=FlavorFiles(project.root.directory, release.trust, platform).of,
        replication=parse_replication(config.homogeneous, config.adaptive).of,
    )
    server = TaskServer(
        store,
        home.part("blobs"),
        around,
        leaves=leaves,
        review_wait_s=config.review_wait_s,
    )
    return server, work, release, revocations, log


def _clock() -> int:
    return int(time.time())


def _cosigner(project: Project, stack: AsyncExitStack) -> Cosigner | None:
    """Return what asks the witnesses, None where there are none."""
    if not project.witnesses.witnesses:
        return None
    cosigner = Cosigner(project.witnesses)
    stack.callback(cosigner.close)
    return cosigner


def _pace(project: Project) -> SequencerSettings:
    """Return the log's pace: every checkpoint costs each witness a request."""
    if not project.witnesses.witnesses:
        return SequencerSettings()
    return SequencerSettings(
        publish_interval_s=WITNESSED_INTERVAL_S, busy_interval_s=WITNESSED_INTERVAL_S
    )


def _tls_names(config: ServerConfig) -> tuple[str, ...]:
    more = tuple(name.strip() for name in config.tls_names.split(",") if name.strip())
    return LOCAL_NAMES + more


def _local_token(home: DataDir, store: Store) -> str:
    """Return the local researcher's token: the old one while it is good."""
    now, old = int(time.time()), home.read_connection()
    with store.write() as connection:
        if old is not None:
            try:
                auth.find_owner(connection, old.token, now)
            except DeniedError:
                pass
            else:
                return old.token
        return auth.issue_token(connection, LOCAL_RESEARCHER, auth.Role.RESEARCHER, now)


def _chores(
    project: Project,
    release: Release,
    revocations: RevocationIssuer,
    server: TaskServer,
    watch: ReleaseWatch,
) -> tuple[Chore, ...]:
    """Return what is done again and again while the server runs."""
    place = project.root.proofs or project.root.directory
    proof = ReleaseProof(place, server.store, server.log)
    return (
        Chore("the signer", project.signer.ensure),
        Chore("the release", release.trust),
        Chore("revocations", revocations.upkeep),
        Chore("the release's proof", proof.upkeep),
        Chore("online metadata", project.client.refresh_metadata, REFRESH_S),
        Chore("the release's expiry", watch.tell, REFRESH_S),
    )


async def _watch(
    stop: asyncio.Event,
    chores: Sequence[Chore],
    volunteers: LocalVolunteers | None,
) -> None:
    """Keep the children alive and the metadata fresh until told to stop."""
    while not stop.is_set():
        for chore in chores:
            if not stop.is_set():
                await asyncio.to_thread(chore.do_if_due)
        if volunteers is not None:
            volunteers.check()
        try:
            await asyncio.wait_for(stop.wait(), WATCH_S)
        except TimeoutError:
            pass
