"""The watch over a running server: `/healthz`, `/readyz`, `/metrics`, and who sees how much.

On the project's own address everybody learns that the process lives and whether it is
ready: a load balancer needs no more. Figures and reasons tell how much is computed here,
when a key or a disk runs out, what can be overloaded: they are for the operator's token
(role operator, scope ``Metrics``), anybody else gets 404. On the watch address, which is
always loopback, no token is asked for. "Comes from loopback" is not enough on the project's
own address, because with a proxy before it everybody does.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Self

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stoilo.core.errors import StoiloError
from stoilo.core.listen import bracket, listen
from stoilo.server.admission import tokens
from stoilo.server.http.web_server import (
    stop_web,
    wait_until_started,
    web_server,
)
from stoilo.server.watching.calls import MeteredApp
from stoilo.server.watching.metrics import Collector, Sources
from stoilo.server.watching.readiness import (
    HeadFreshness,
    LogFigures,
    ReadinessThread,
    check_disk,
    check_log,
    check_release,
    check_store,
)
from stoilo.signer.process.client import SignerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from stoilo.audit.log.sequencer import Sequencer
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.server.admission.pipeline import AdmissionPipeline
    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import MeasuredEngine
    from stoilo.server.release.project import Project
    from stoilo.server.release.released import ReleaseWatch
    from stoilo.server.validation.docket import Docket
    from stoilo.server.watching.readiness import Readiness


SIGNER_S = 2.0
# Below ``DIR/run``: the watch address' URL as bound
WATCH_FILE = "watch"
METRICS_SCOPE: Final = "Metrics"
_NOT_CACHED: Final = {"Cache-Control": "no-store"}


class ServerWatch:
    """Metrics and readiness of one server.

    Attributes:
        sources: where figures come from; its meters are to be hung into gRPC and HTTP.
        readiness: asks whether the server is ready, from `start` on.
    """

    def __init__(
        self,
        sources: Sources,
        readiness: ReadinessThread,
        allowed: Callable[[str], bool],
    ) -> None:
        self.sources = sources
        self.readiness = readiness
        self.collector = Collector(sources)
        self._allowed = allowed

    @classmethod
    def over(
        cls,
        home: DataDir,
        *,
        store: Store,
        engine: MeasuredEngine,
        log: Sequencer,
        project: Project,
        release: ReleaseWatch,
        trust: Callable[[], TrustedRelease],
        pipeline: AdmissionPipeline,
        docket: Docket,
        clock: Callable[[], int],
    ) -> Self:
        """Return the watch over the parts of the server in `home`; starts nothing."""
        freshness = HeadFreshness()

        def figures() -> LogFigures:
            published = log.published_size  # first: so it is never the larger
            size = log.size
            lag = freshness.lag(size, published, time.monotonic())
            return LogFigures(size, published, lag, log.trouble if lag else "")

        def epoch_rate() -> int:
            epoch = trust().epoch_at(clock(), 1)
            return epoch.max_per_minute if epoch else 0

        # places on one disk are shown each all the same
        head = home.path / "audit-head"
        places = {"data": home.path, "log": home.path / "audit", "log_head": head}
        readiness = ReadinessThread(
            {
                "database": lambda: check_store(store),
                "engine": engine.check_database,
                "signer": lambda: _ping(project.socket),
                "log": lambda: check_log(figures),
                "release": lambda: check_release(release.status),
                "disk": lambda: check_disk(places.values()),
            }
        )
        sources = Sources(
            store=store,
            engine=engine,
            log=figures,
            pipeline=pipeline,
            release=release.status,
            epoch_rate=epoch_rate,
            readiness=readiness.newest,
            places=places,
            clock=clock,
            validators=lambda: docket.waiting,
        )
        return cls(sources, readiness, may_watch(store))

    def routes(self) -> Sequence[Route]:
        """Return the routes for the project's own address."""
        return watch_routes(self.collector, self.readiness.newest, self._allowed)

    def metered(self, app: ASGIApp, prefix: str) -> MeteredApp:
        """Return `app` with its calls timed; `prefix` is its URL's path."""
        return MeteredApp(app, self.sources.http, prefix)

    async def serve(
        self, config: ServerConfig, home: DataDir, stack: AsyncExitStack
    ) -> None:
        """Listen on the watch address, where there is one, and note its URL."""
        if not config.watch:
            return
        listener = listen(config.watch)
        web = web_server(
            config, watch_app(self.collector, self.readiness.newest), tls=False
        )
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        stack.push_async_callback(stop_web, web, serving)
        await wait_until_started(web, serving)
        host, port = listener.getsockname()[:2]
        (home.part("run") / WATCH_FILE).write_text(f"http://{bracket(host)}:{port}/\n")

    async def start(self, stack: AsyncExitStack, told: Callable[[bool], None]) -> None:
        """Begin to ask; `told` hears, in the caller's event loop, what changes."""
        loop = asyncio.get_running_loop()
        self.readiness.tell(lambda ready: _post(loop, told, ready))
        await asyncio.to_thread(self.readiness.start)
        stack.callback(self.readiness.stop)


def _post(
    loop: asyncio.AbstractEventLoop, told: Callable[[bool], None], ready: bool
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(told, ready)


def _ping(path: Path) -> None:
    # a connection of its own: nobody waits behind an answer that does not come
    with SignerClient(path, timeout_s=SIGNER_S) as client:
        client.ping()


def watch_routes(
    collector: Collector,  # gives the metrics
    readiness: Callable[[], Readiness],  # the newest answers
    # whether an (untrusted) token may see figures and reasons; blocks
    allowed: Callable[[str], bool],
) -> Sequence[Route]:
    """Return the three routes."""

    async def permitted(request: Request) -> bool:
        """Say whether the caller's token opens figures and reasons."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        return await run_in_threadpool(allowed, given)

    async def health(request: Request) -> Response:
        """Answer that the process lives."""
        del request
        return JSONResponse({"alive": True}, headers=_NOT_CACHED)

    async def ready(request: Request) -> Response:
        """Answer whether work is welcome; why not only to the operator."""
        found = readiness()
        body: dict[str, object] = {"ready": found.ready}
        if await permitted(request):
            body["checks"] = [
                {"name": one.name, "ok": one.ok, "reason": one.reason}
                for one in found.checks
            ]
        return JSONResponse(body, 200 if found.ready else 503, _NOT_CACHED)

    async def metrics(request: Request) -> Response:
        """Answer with all figures."""
        if not await permitted(request):
            return Response("not found\n", status_code=404, media_type="text/plain")
        text = await run_in_threadpool(collector.render)
        return Response(
            text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, **_NOT_CACHED}
        )

    return (
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    )


def watch_app(collector: Collector, readiness: Callable[[], Readiness]) -> Starlette:
    """Return the application of the watch address: nobody is asked for a token."""
    return Starlette(routes=[*watch_routes(collector, readiness, lambda _token: True)])


def may_watch(store: Store) -> Callable[[str], bool]:
    """Return what says whether a token is an operator's for watching."""

    def allowed(token: str) -> bool:
        """Look the token up; one that cannot be one costs no query."""
        if not token.startswith("sto_"):
            return False
        try:
            with store.read() as connection:
                owner = tokens.find_owner(connection, token, int(time.time()))
        except StoiloError:  # unknown, or the database does not answer
            return False
        scopes = owner.scope.split(",")
        return owner.role == tokens.Role.OPERATOR and (
            owner.scope == "*" or METRICS_SCOPE in scopes
        )

    return allowed
