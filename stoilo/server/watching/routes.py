"""`/healthz`, `/readyz` and `/metrics` over HTTP, and who may see how much.

On the project's own address everybody learns that the process lives and whether it is
ready: a load balancer needs no more. Figures and reasons tell how much is computed here,
when a key or a disk runs out, what can be overloaded: they are for the operator's token
(role operator, scope ``Metrics``), anybody else gets 404. On the watch address, which is
always loopback, no token is asked for. "Comes from loopback" is not enough on the project's
own address, because with a proxy before it everybody does.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from stoilo.core.errors import StoiloError
from stoilo.server.admission import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from stoilo.server.db.store import Store
    from stoilo.server.watching.metrics import Collector
    from stoilo.server.watching.readiness import Readiness


METRICS_SCOPE: Final = "Metrics"
_NOT_CACHED: Final = {"Cache-Control": "no-store"}


def watch_routes(
    collector: Collector,
    readiness: Callable[[], Readiness],
    allowed: Callable[[str], bool],
) -> Sequence[Route]:
    """Return the three routes.

    Args:
        collector: gives the metrics.
        readiness: the newest answers.
        allowed: whether an (untrusted) token may see figures and reasons; blocks.
    """

    async def permitted(request: Request) -> bool:
        """Say whether the caller's token opens figures and reasons."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        return await run_in_threadpool(allowed, given)

    async def health(request: Request) -> Response:
        """Answer that the process lives."""
        del request
        return _json({"alive": True}, 200)

    async def ready(request: Request) -> Response:
        """Answer whether work is welcome; why not only to the operator."""
        found = readiness()
        body: dict[str, object] = {"ready": found.ready}
        if await permitted(request):
            body["checks"] = [
                {"name": one.name, "ok": one.ok, "reason": one.reason}
                for one in found.checks
            ]
        return _json(body, 200 if found.ready else 503)

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


def _json(body: dict[str, object], status: int) -> Response:
    return Response(
        json.dumps(body) + "\n",
        status_code=status,
        media_type="application/json",
        headers=_NOT_CACHED,
    )
