"""How many calls there were and how long they took: gRPC and HTTP alike.

Names of methods and routes come from lists of ours; whatever else is called counts as
``other``, so that a stranger cannot make series.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

import grpc

from stoilo.core.rpc import reviews_pb2, tasks_pb2
from stoilo.server.watching.text import Distribution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


BOUNDS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER: Final = "other"

METHODS: Final = frozenset(
    method.name
    for file in (tasks_pb2, reviews_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
) | {"Check", "Watch"}

ROUTES: Final[Mapping[str, str]] = {
    "": "master",
    "sched": "sched",
    "download": "download",
    "upload": "upload",
    "audit": "audit",
    "release": "release",
    "stats": "stats",
    "metrics": "watch",
    "healthz": "watch",
    "readyz": "watch",
    "get_project_config.php": "account",
    "create_account.php": "account",
    "lookup_account.php": "account",
}


class CallMeter:
    """Counts calls of one kind; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._totals: dict[tuple[str, str], float] = {}

    def note(self, name: str, status: str, took_s: float) -> None:
        """Count one call."""
        key = (name, status)
        with self._lock:
            counts = self._counts.setdefault(key, [0] * (len(BOUNDS_S) + 1))
            counts[bisect_left(BOUNDS_S, took_s)] += 1
            self._totals[key] = self._totals.get(key, 0.0) + took_s

    def read(self) -> dict[tuple[str, str], Distribution]:
        """Return what was counted, by name and status."""
        with self._lock:
            return {
                key: Distribution(BOUNDS_S, tuple(counts), self._totals[key])
                for key, counts in sorted(self._counts.items())
            }


class MeteredCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Times every gRPC call until its last message."""

    def __init__(self, meter: CallMeter) -> None:
        self._meter = meter

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        details: Any,  # noqa: ANN401 - gRPC's own
    ) -> Any:  # noqa: ANN401
        """Return the method's handler, timed."""
        handler = await continuation(details)
        if handler is None:
            return None
        last = str(details.method).rpartition("/")[2]
        name = last if last in METHODS else OTHER
        return self._timed(handler, name)

    def _timed(self, handler: Any, name: str) -> Any:  # noqa: ANN401
        # a stream of both kinds is the intake's, which sends its answers itself
        for kind in ("unary_unary", "stream_unary", "stream_stream"):
            inner = getattr(handler, kind)
            if inner is not None:
                return handler._replace(**{kind: self._one_answer(inner, name)})
        inner = handler.unary_stream
        if inner is None:
            return handler
        return handler._replace(unary_stream=self._many_answers(inner, name))

    def _one_answer(self, inner: Any, name: str) -> Any:  # noqa: ANN401
        async def timed(request: Any, context: Any) -> Any:  # noqa: ANN401
            began = time.monotonic()
            try:
                return await inner(request, context)
            finally:
                self._meter.note(name, _code(context), time.monotonic() - began)

        return timed

    def _many_answers(self, inner: Any, name: str) -> Any:  # noqa: ANN401
        async def timed(request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
            began = time.monotonic()
            try:
                async for message in inner(request, context):
                    yield message
            finally:
                self._meter.note(name, _code(context), time.monotonic() - began)

        return timed


def _code(context: Any) -> str:  # noqa: ANN401 - gRPC's own
    """Return the status' name; an unset one is OK."""
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    return "OK" if not code else OTHER


def route_of(path: str, prefix: str = "/") -> str:
    """Return the name of a route for an untrusted path. Pure."""
    below = path.removeprefix(prefix.rstrip("/")).lstrip("/")
    return ROUTES.get(below.partition("/")[0], OTHER)


class MeteredApp:
    """An ASGI application whose calls are timed until their answer's last byte."""

    def __init__(self, app: ASGIApp, meter: CallMeter, prefix: str = "/") -> None:
        self._app = app
        self._meter = meter
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; count HTTP only."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = "none"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{int(message['status']) // 100}xx"
            await send(message)

        began = time.monotonic()
        try:
            await self._app(scope, receive, noting)
        finally:
            name = route_of(scope["path"], self._prefix)
            self._meter.note(name, status, time.monotonic() - began)
