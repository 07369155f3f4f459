"""`stoilo up`: one server on its engine, its signer and its local volunteers, in order.

Start order is trust order: directory lock, development root, signer, log (checked; an
inconsistent one refuses), database, engine, pipeline, network, volunteers. Only when all
of it runs is the one line printed. Stop order is the reverse.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import grpc
import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, StoiloError, UsageError
from stoilo.core.listen import bracket, cannot_bind, listen, parse_address
from stoilo.server.admission import tokens
from stoilo.server.api.grpc_server import bind_grpc, set_serving, tell_health
from stoilo.server.app.engine import WorkEngine
from stoilo.server.app.task_server import (
    Face,
    ServerParts,
    ServerPlace,
    TaskServer,
    assemble,
    clock,
)
from stoilo.server.app.trust import load_policy
from stoilo.server.config import ServerConfig
from stoilo.server.data_directory import ConnectionFile, DataDir, claim_directory
from stoilo.server.db.store import Store
from stoilo.server.engines.embedded.web.people_pages import Front
from stoilo.server.http.log_files import log_routes, seen_routes, side_routes
from stoilo.server.http.release_files import release_routes
from stoilo.server.http.web_server import (
    AUDIT_PAGES,
    GRACE_S,
    http_url,
    stop_web,
    wait_until_started,
    web_server,
)
from stoilo.server.operations.programs import ProgramMaking
from stoilo.server.release.changes import (
    ReleaseProof,
)
from stoilo.server.release.flavors import offered_flavors
from stoilo.server.release.project import REFRESH_S, Project, start_project
from stoilo.server.release.released import ReleaseWatch
from stoilo.server.tls import LOCAL_NAMES, TlsFiles, ensure_tls
from stoilo.server.watching.calls import MeteredCalls
from stoilo.server.watching.watch import ServerWatch

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.files.holders import Nodes
    from stoilo.server.operations.volunteers import LocalVolunteers


LOGGER = logging.getLogger(__name__)
LOCAL_RESEARCHER = "local"
WATCH_S = 0.5
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 1024 * 1024
OPEN_FILES: Final = 8192
"""More than all connections of both interfaces together, and the databases' files."""
AGAIN_S = 60.0  # so often trouble that lasts is told
BLOCKING_THREADS = 32
"""For calls that wait for a disk or a jail, whatever number of processors there is."""


class UpLine(msgspec.Struct, frozen=True):
    """The one stdout line of `stoilo up` (design §7)."""

    grpc: str
    http: str
    project: str | None
    token: str
    connection: str
    volunteers: int


async def run_server(
    config: ServerConfig,
    ready: Callable[[UpLine], None],
    faces: Sequence[Face] = (),
    nodes: Nodes | None = None,
) -> None:
    """Run until SIGTERM or SIGINT; calls `ready` once everything answers.

    Args:
        config: the settings in force.
        ready: gets the one line.
        faces: pages to mount beside the project's own.
        nodes: the project's own, where there are some.

    Raises:
        UsageError: ``STO-R090`` an address beyond loopback without TLS.
        InternalError: ``STO-R070``, ``STO-U006``, ``STO-K020``.
        TrustError: ``STO-L04x`` the log is inconsistent, ``STO-K…`` the root.
    """
    check_addresses(config)
    give_large_blocks_back()
    allow_open_files()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Python would take as many as there are processors: on a small machine a few calls
    # that wait for a disk would stop all others.
    loop.set_default_executor(ThreadPoolExecutor(BLOCKING_THREADS, "blocking"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        home = claim_directory(config.data)
        stack.callback(home.lock.close)
        await _run(config, home, stack, stop, ready, faces, nodes)


def check_addresses(config: ServerConfig) -> None:
    """Raise ``STO-R090`` when volunteers beyond this machine would get no TLS."""
    http = parse_address(config.http)
    if not http.loopback and not (config.http_certificate and config.http_key):
        raise UsageError(
            "STO-R090",
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
    nodes: Nodes | None,
) -> None:
    policy = load_policy(config.policy)
    store = Store.open(config.database_url)
    stack.callback(store.close)
    project = start_project(config, home, stack, policy, store)
    parts = assemble(config, home, stack, policy, project, store)
    tasks, work = parts.tasks, parts.work
    work.join(nodes)
    release = parts.trust.release
    root = project.root
    watch = ReleaseWatch(root.directory, release.trust, clock, project.check_certified)
    watching = ServerWatch.over(
        home,
        store=store,
        engine=work.engine,
        log=parts.log.writer,
        project=project,
        release=watch,
        trust=release.trust,
        pipeline=tasks.pipeline,
        docket=tasks.docket,
        clock=clock,
    )
    # Both addresses are taken before anything moves: a second server fails at once.
    listener = listen(config.http)
    http = http_url(config, listener)
    url = config.project_url or http
    token = _local_token(home, store)
    tls = ensure_tls(home.part("tls"), datetime.now(UTC), _tls_names(config))
    grpc_server, port = _bind(config, tasks, tls, watching)
    place = f"{bracket(parse_address(config.grpc).host)}:{port}"
    tasks.start()
    stack.callback(tasks.stop)
    await grpc_server.start()
    stack.push_async_callback(grpc_server.stop, GRACE_S)
    stack.callback(tasks.service.ends.close)  # else the stop waits for who waits
    path = urlsplit(url).path
    fingerprint = content_digest((root.directory / "root.json").read_bytes())
    front = Front(config.purpose, fingerprint, watching.collector.public)
    face = work.face(url, path, AUDIT_PAGES if faces else "", front)
    log_directory = config.data / "audit" / "log"
    face.routes.extend(log_routes(log_directory))
    face.routes.extend(side_routes(log_directory, parts.log.side))
    face.routes.extend(seen_routes(parts.log.seen))
    roster = work.embedded.roster if work.embedded else None
    place_of_pages = ServerPlace(config.data, url, tasks, watching, config, roster)
    for more in faces:
        face.routes.extend(more(place_of_pages))
    face.routes.extend(release_routes(root.directory, watch.status, root.proofs))
    face.routes.extend(watching.routes())
    web = web_server(config, watching.metered(face, path))
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    stack.push_async_callback(stop_web, web, serving)
    volunteers = _start_volunteers(work, config, home, url, project, stack)
    programs = _programs(project, home, parts, stack)
    master = work.master_url or url
    content = ConnectionFile(place, url, master, token, tls.ca.decode())
    home.write_connection(content)
    await wait_until_started(web, serving)
    await watching.serve(config, home, stack)
    await watching.start(stack, lambda ready: tell_health(grpc_server, ready))
    ready(UpLine(place, http, master, token, str(home.connection), config.volunteers))
    await _watch(stop, _chores(project, parts, watch), (volunteers, programs))
    await set_serving(grpc_server, serving=False)


def _bind(
    config: ServerConfig, tasks: TaskServer, tls: TlsFiles, watching: ServerWatch
) -> tuple[grpc.aio.Server, int]:
    """Return the researchers' interface and its port, or raise ``STO-U006``."""
    try:
        return bind_grpc(
            tasks.service,
            config.grpc,
            tls,
            tasks.review_service,
            (MeteredCalls(watching.sources.rpc),),
            accounts=tasks.account_service,
            progress=tasks.progress_service,
        )
    except RuntimeError as error:  # gRPC's own, without a reason
        raise cannot_bind(config.grpc) from error


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


def _programs(
    project: Project, home: DataDir, parts: ServerParts, stack: AsyncExitStack
) -> ProgramMaking | None:
    """Let BOINC's programs be made when a client lacks them, where no ceremony does it."""
    embedded = parts.work.embedded
    if embedded is None or project.root.released:
        return None
    making = ProgramMaking(home, lambda: offered_flavors(parts.trust.release.trust()))
    embedded.scheduler.on_lack = making.lack
    stack.callback(making.stop)
    return making


def _tls_names(config: ServerConfig) -> tuple[str, ...]:
    more = tuple(name.strip() for name in config.tls_names.split(",") if name.strip())
    return LOCAL_NAMES + more


def _local_token(home: DataDir, store: Store) -> str:
    """Return the local researcher's token: the old one while it is good."""
    now, old = clock(), home.read_connection()
    with store.write() as connection:
        if old is not None:
            try:
                tokens.find_owner(connection, old.token, now)
            except DeniedError:
                pass
            else:
                return old.token
        return tokens.issue_token(
            connection, LOCAL_RESEARCHER, tokens.Role.RESEARCHER, now
        )


@dataclass(slots=True)
class Chore:
    """One thing to do, at its own pace; trouble is told when it changes or lasts."""

    name: str  # for people
    # raises one of our errors, the system's or a database's, while it cannot be done
    work: Callable[[], object]
    # shortest time between two times that it was done, s; 0 for each call
    every_s: float = 0.0
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    _done_at: float = field(default=float("-inf"), init=False)
    _trouble: str = field(default="", init=False)
    _told_at: float = field(default=float("-inf"), init=False)

    def do_if_due(self) -> bool:
        """Do it if it is due; returns whether it was done."""
        now = self.clock()
        if now - self._done_at < self.every_s:
            return False
        try:
            self.work()
        except (StoiloError, OSError, sqlite3.Error) as error:
            self._tell(str(error), now)
            return False
        self._done_at, self._trouble = now, ""
        return True

    def _tell(self, trouble: str, now: float) -> None:
        if trouble != self._trouble or now - self._told_at >= AGAIN_S:
            LOGGER.warning("%s: upkeep waits: %s", self.name, trouble)
            self._trouble, self._told_at = trouble, now


def _chores(
    project: Project, parts: ServerParts, watch: ReleaseWatch
) -> tuple[Chore, ...]:
    """Return what is done again and again while the server runs."""
    place = project.root.proofs or project.root.directory
    proof = ReleaseProof(place, parts.tasks.store, parts.log.writer)
    return (
        Chore("the signer", project.ensure_signer),
        Chore("the release", parts.trust.release.trust),
        Chore("revocations", parts.trust.revocations.upkeep),
        Chore("the release's proof", proof.upkeep),
        Chore("online metadata", project.client.refresh_metadata, REFRESH_S),
        Chore("the release's expiry", watch.tell, REFRESH_S),
    )


async def _watch(
    stop: asyncio.Event,
    chores: Sequence[Chore],
    children: Sequence[LocalVolunteers | ProgramMaking | None],
) -> None:
    """Keep the children alive and the metadata fresh until told to stop."""
    while not stop.is_set():
        for chore in chores:
            # In a thread each: none of them may hold up the loop that answers calls.
            if not stop.is_set():
                await asyncio.to_thread(chore.do_if_due)
        for child in children:
            if child is not None:
                child.check()
        try:
            await asyncio.wait_for(stop.wait(), WATCH_S)
        except TimeoutError:
            pass


def give_large_blocks_back() -> bool:
    """Give every block of a MiB or more pages of its own from now on.

    Returns whether the C library could be told; another than glibc cannot, and needs not.
    """
    # glibc raises by itself the size from which a block has pages of its own, to 32 MiB
    # once one of that size was freed. From then on messages and results lie between small
    # blocks that stay, and what is freed between them is not given back.
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        LOGGER.info("the C library has no mallopt: memory is given back as it likes")
        return False
    mapped = set_option(M_MMAP_THRESHOLD, LARGE_BYTES)
    trimmed = set_option(M_TRIM_THRESHOLD, LARGE_BYTES)
    return bool(mapped and trimmed)


def allow_open_files() -> None:
    """Let this process have as many open files as its connections may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def settle_collector() -> None:
    """Have Python's collector leave out what is there: it stays until the end anyway."""
    # A full collection holds up every thread, 100 ms and more for what a start has made.
    gc.collect()
    gc.freeze()
