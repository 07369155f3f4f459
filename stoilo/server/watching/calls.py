"""What is counted as it happens: gRPC and HTTP calls.

Names of methods and routes come from lists of ours; whatever else is called counts as
``other``, so that a stranger cannot make series.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import grpc

from stoilo.core.rpc import accounts_pb2, reviews_pb2, tasks_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from prometheus_client import Histogram
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER: Final = "other"

METHODS: Final = frozenset(
    method.name
    for file in (tasks_pb2, reviews_pb2, accounts_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
) | {"Check", "Watch"}

ROUTES: Final[Mapping[str, str]] = {
    "": "master",
    "sched": "sched",
    "download": "download",
    "upload": "upload",
    "audit": "audit",
    "console": "console",
    "release": "release",
    "stats": "stats",
    "metrics": "watch",
    "healthz": "watch",
    "readyz": "watch",
    "get_project_config.php": "account",
    "create_account.php": "account",
    "lookup_account.php": "account",
}


class MeteredCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Times every gRPC call until its last message."""

    def __init__(self, times: Histogram) -> None:
        self._times = times

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
        inner = handler.stream_stream  # every method is one behind the intake

        async def timed(request: Any, context: Any) -> Any:  # noqa: ANN401
            began = time.monotonic()
            try:
                return await inner(request, context)
            finally:
                self._note(name, context, began)

        return handler._replace(stream_stream=timed)

    def _note(self, name: str, context: Any, began: float) -> None:  # noqa: ANN401
        code = context.code()
        unset = OTHER if code else "OK"
        status = str(code.name) if isinstance(code, grpc.StatusCode) else unset
        self._times.labels(name, status).observe(time.monotonic() - began)


def route_of(path: str, prefix: str = "/") -> str:
    """Return the name of a route for an untrusted path. Pure."""
    below = path.removeprefix(prefix.rstrip("/")).lstrip("/")
    return ROUTES.get(below.partition("/")[0], OTHER)


class MeteredApp:
    """An ASGI application whose calls are timed until their answer's last byte."""

    def __init__(self, app: ASGIApp, times: Histogram, prefix: str = "/") -> None:
        self._app = app
        self._times = times
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
            self._times.labels(name, status).observe(time.monotonic() - began)
