"""`stoilo up`: one embedded server, its signer and its local volunteers, in order.

Start order is trust order: directory lock, development root, signer, log (checked; an
inconsistent one refuses), database, engine, pipeline, network, volunteers. Only when all
of it runs is the one line printed. Stop order is the reverse.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import uvicorn

from stoilo.audit.sequencer import Sequencer
from stoilo.core.errors import DeniedError, InternalError, StoiloError, UsageError
from stoilo.executor.release import InstalledRelease, TrustedRelease
from stoilo.executor.trust import load_trust, pack_release, read_release
from stoilo.policies.levels import load_level, load_levels
from stoilo.sandbox.rules import LANGUAGE_DIGEST
from stoilo.server import auth, rows
from stoilo.server.assembly import Neighbours, TaskServer, bind_grpc, set_serving
from stoilo.server.config import ServerConfig, parse_address
from stoilo.server.datadir import ConnectionFile, DataDir, claim_directory
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.server.engines.embedded.http import create_project_app
from stoilo.server.keyevents import record_keys
from stoilo.server.logfiles import log_routes
from stoilo.server.logmemory import check_log_size
from stoilo.server.neighbours import (
    JailedJudge,
    ValidatorJails,
    choose_flavor,
    facts_of,
    load_policy,
)
from stoilo.server.store import Store
from stoilo.server.tls import LOCAL_NAMES, ensure_tls
from stoilo.server.volunteers import LocalVolunteers
from stoilo.signer.checkpoints import CheckpointSigner
from stoilo.signer.client import SignerClient
from stoilo.signer.devroot import DevelopmentRoot, create_development_root
from stoilo.signer.launch import SignerProcess

if TYPE_CHECKING:
    from stoilo.policies.policy import Policy

__all__ = ["Project", "UpLine", "assemble", "run_server", "start_project"]

LOGGER = logging.getLogger(__name__)
LOCAL_RESEARCHER = "local"
WATCH_S = 0.5
REFRESH_S = 600.0
GRACE_S = 2.0


class UpLine(msgspec.Struct, frozen=True):
    """The one stdout line of `stoilo up` (design §7)."""

    grpc: str
    http: str
    project: str | None
    token: str
    connection: str
    volunteers: int


@dataclass(frozen=True, slots=True)
class Project:
    """What the release and its processes are, once they run."""

    root: DevelopmentRoot
    signer: SignerProcess
    client: SignerClient
    installed: InstalledRelease

    def trust(self) -> TrustedRelease:
        """Read and verify the release as a volunteer would."""
        return load_trust(
            read_release(self.root.directory),
            self.root.root_file.read_bytes(),
            int(time.time()),
            installed=self.installed,
        )

    def bundle(self) -> bytes:
        """Return the release as the one file that goes out with workunits."""
        return pack_release(read_release(self.root.directory))


async def run_server(config: ServerConfig, ready: Callable[[UpLine], None]) -> None:
    """Run until SIGTERM or SIGINT; calls `ready` once everything answers.

    Raises:
        UsageError: ``STO-R073`` an address beyond loopback without TLS.
        InternalError: ``STO-R070``, ``STO-R071``, ``STO-R074``, ``STO-K020``.
        TrustError: ``STO-L04x`` the log is inconsistent, ``STO-K…`` the root.
    """
    check_addresses(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        home = claim_directory(config.data)
        stack.callback(home.lock.close)
        await _run(config, home, stack, stop, ready)


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
) -> None:
    policy = load_policy(config.policy)
    store = Store.open(config.database_url)
    stack.callback(store.close)
    project = start_project(config, home, stack, policy, store)
    server, engine = assemble(config, home, stack, policy, project, store)
    listener = _listen(config.http)
    http = _http_url(config, listener)
    engine.set_release(project.bundle())
    token = _local_token(home, server.store)
    tls = ensure_tls(home.part("tls"), datetime.now(UTC), _tls_names(config))
    try:
        grpc_server, port = bind_grpc(server.service, config.grpc, tls)
    except RuntimeError as error:
        raise _cannot_bind(config.grpc) from error
    grpc_address = parse_address(config.grpc)
    place = f"{_bracket(grpc_address.host)}:{port}"
    server.start()
    stack.callback(server.stop)
    await grpc_server.start()
    stack.push_async_callback(grpc_server.stop, GRACE_S)
    face = create_project_app(engine, http)
    face.routes.extend(log_routes(config.data / "audit" / "log"))
    web = _web_server(config, face)
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    stack.push_async_callback(_stop_web, web, serving)
    volunteers = LocalVolunteers(
        config.volunteers, home, engine, http, project.root.root_file
    )
    volunteers.start()
    # in a thread: while they end, the loop still answers their last calls
    stack.push_async_callback(asyncio.to_thread, volunteers.stop)
    content = ConnectionFile(place, http, http, token, tls.ca.decode())
    home.write_connection(content)
    await set_serving(grpc_server, serving=True)
    await _started(web, serving)
    ready(UpLine(place, http, http, token, str(home.connection), config.volunteers))
    await _watch(stop, project, engine, volunteers)
    await set_serving(grpc_server, serving=False)


def start_project(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    store: Store,
) -> Project:
    """Make or renew the development root and start its signer.

    Policies of attempts that are still open stay accepted: an admission holds until its
    end or its revocation, whatever policy comes after.
    """
    with store.read() as connection:
        earlier = rows.policies_in_use(connection)
    installed = InstalledRelease(load_levels(), LANGUAGE_DIGEST)
    root = create_development_root(
        home.part("keys"),
        config.origin,
        int(time.time()),
        installed=installed,
        policies=tuple({policy.digest: None, **dict.fromkeys(earlier)}),
    )
    LOGGER.warning(
        "development root: its offline keys lie in %s; it protects nobody else",
        "DIR/keys",
    )
    socket_path = home.part("run") / "signer.sock"
    signer = SignerProcess(root.directory, socket_path)
    signer.start()
    stack.callback(signer.stop)
    client = SignerClient(socket_path, revive=signer.ensure)
    stack.callback(client.close)
    return Project(root, signer, client, installed)


def assemble(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    project: Project,
    store: Store,
) -> tuple[TaskServer, EmbeddedEngine]:
    """Open log, database, engine and jails, and wire them."""
    checkpoints = SignerClient(
        home.part("run") / "signer.sock", revive=project.signer.ensure
    )
    stack.callback(checkpoints.close)
    log = Sequencer.open(
        config.data,
        config.origin,
        CheckpointSigner(checkpoints, config.data / "audit" / "log"),
        policy=project.root.trust.log_policy,
    )
    stack.callback(log.close)
    check_log_size(log.size, checkpoints.ping().size, store)
    judge, jails = JailedJudge(policy), ValidatorJails()
    stack.callback(judge.close)
    stack.callback(jails.close)
    engine = EmbeddedEngine(home.part("engine"))
    trust = _Remembered(project.trust)

    def clock() -> int:
        return int(time.time())

    around = Neighbours(
        log=log,
        signer=project.client,
        engine=engine,
        judge=judge,
        policy=policy,
        jail_of=jails.of,
        levels=load_level,
        flavors=choose_flavor,
        facts=facts_of(trust, clock, config.admission_life_s),
        clock=clock,
    )
    record_keys(
        log,
        read_release(project.root.directory),
        policy,
        around.facts().epoch,
        clock(),
    )
    server = TaskServer(store, home.part("blobs"), around, config.refusal_interval_s)
    return server, engine


class _Remembered:
    """The verified release, verified again when it is older than `REFRESH_S`."""

    def __init__(self, load: Callable[[], TrustedRelease]) -> None:
        self._load = load
        self._at = 0.0
        self._release: TrustedRelease | None = None

    def __call__(self) -> TrustedRelease:
        """Return the release."""
        now = time.monotonic()
        if self._release is None or now - self._at > REFRESH_S:
            self._release, self._at = self._load(), now
        return self._release


def _listen(text: str) -> socket.socket:
    """Return a bound socket for HTTP, or raise ``STO-R074``."""
    address = parse_address(text)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it. A reply's body would otherwise wait 40 ms for the
    # client's delayed acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise _cannot_bind(text) from error
    return listener


def _cannot_bind(text: str) -> InternalError:
    return InternalError(
        "STO-R074", f"{text} cannot be bound", hint="port 0 takes any free one"
    )


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _http_url(config: ServerConfig, listener: socket.socket) -> str:
    scheme = "https" if config.http_certificate else "http"
    host = parse_address(config.http).host
    return f"{scheme}://{_bracket(host)}:{listener.getsockname()[1]}/"


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


class _WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: ours stop everything in order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _web_server(config: ServerConfig, app: object) -> _WebServer:
    settings = uvicorn.Config(
        app,  # type: ignore[arg-type]  # any ASGI application
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(GRACE_S),
        ssl_certfile=config.http_certificate or None,
        ssl_keyfile=config.http_key or None,
    )
    return _WebServer(settings)


async def _started(web: _WebServer, serving: asyncio.Task[None]) -> None:
    """Wait until uvicorn accepts; it offers a flag and no event."""
    pause = asyncio.Event()
    while not web.started and not serving.done():
        try:
            await asyncio.wait_for(pause.wait(), 0.01)
        except TimeoutError:
            pass


async def _stop_web(web: _WebServer, serving: asyncio.Task[None]) -> None:
    web.should_exit = True
    await serving


async def _watch(
    stop: asyncio.Event,
    project: Project,
    engine: EmbeddedEngine,
    volunteers: LocalVolunteers,
) -> None:
    """Keep the children alive and the metadata fresh until told to stop."""
    refreshed = time.monotonic()
    while not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), WATCH_S)
        except TimeoutError:
            pass
        try:
            await asyncio.to_thread(project.signer.ensure)
            if time.monotonic() - refreshed > REFRESH_S:
                await asyncio.to_thread(project.client.refresh_metadata)
                await asyncio.to_thread(engine.set_release, project.bundle())
                refreshed = time.monotonic()
        except StoiloError as error:
            LOGGER.warning("upkeep waits: %s", error)
        volunteers.check()
