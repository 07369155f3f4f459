"""Wiring: the watch over one running server, out of its parts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from stoilo.core.listen import listen
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
from stoilo.server.watching.routes import may_watch, watch_app, watch_routes
from stoilo.signer.process.client import SignerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from starlette.routing import Route
    from starlette.types import ASGIApp

    from stoilo.audit.log.sequencer import Sequencer
    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import MeasuredEngine
    from stoilo.server.release.expiry import ReleaseWatch
    from stoilo.server.release.project import Release
    from stoilo.server.validation.docket import Docket
    from stoilo.server.watching.calls import CountedSigner


SIGNER_S = 2.0
# Below ``DIR/run``: the watch address' URL as bound
WATCH_FILE = "watch"


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """The parts of a server that are watched."""

    store: Store
    engine: MeasuredEngine
    log: Sequencer
    signer: CountedSigner
    signer_socket: Path
    release: Release
    status: ReleaseWatch
    docket: Docket


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
    def over(cls, home: DataDir, parts: WatchedParts, clock: Callable[[], int]) -> Self:
        """Return the watch over the parts of the server in `home`; starts nothing."""
        freshness = HeadFreshness()

        def log() -> LogFigures:
            published = parts.log.published_size  # first: so it is never the larger
            size = parts.log.size
            lag = freshness.lag(size, published, time.monotonic())
            return LogFigures(size, published, lag, parts.log.trouble if lag else "")

        # places on one disk are shown each all the same
        head = home.path / "audit-head"
        places = {"data": home.path, "log": home.path / "audit", "log_head": head}
        readiness = ReadinessThread(
            {
                "database": lambda: check_store(parts.store),
                "engine": parts.engine.check_database,
                "signer": lambda: _ping(parts.signer_socket),
                "log": lambda: check_log(log),
                "release": lambda: check_release(parts.status.status),
                "disk": lambda: check_disk(places.values()),
            }
        )
        sources = Sources(
            store=parts.store,
            engine=parts.engine,
            log=log,
            signer=parts.signer,
            release=parts.status.status,
            epoch_rate=lambda: _epoch_rate(parts.release, clock()),
            readiness=readiness.newest,
            places=places,
            clock=clock,
            validators=lambda: parts.docket.waiting,
        )
        return cls(sources, readiness, may_watch(parts.store))

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
        name = f"[{host}]" if ":" in host else host
        (home.part("run") / WATCH_FILE).write_text(f"http://{name}:{port}/\n")

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


def _epoch_rate(release: Release, now: int) -> int:
    trust = release.trust()
    rates = [
        epoch.max_per_minute
        for epoch in trust.epochs
        if epoch.not_before <= now < epoch.not_after
        and epoch.number >= trust.min_epoch
        and epoch.number not in trust.revoked_epochs
    ]
    return rates[-1] if rates else 0
