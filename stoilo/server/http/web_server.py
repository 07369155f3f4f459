"""The web server of `stoilo up`: its socket, its address, its start and its stop.

The server knows no page for people. `run_server(…, faces=…)` mounts what the command line
hands to it, so that pages stay above the server in the layers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.routing import BaseRoute

from stoilo.core.listen import bracket, parse_address
from stoilo.server.config import ServerConfig
from stoilo.server.http.http_timeout import TimedProtocol

GRACE_S: Final = 2.0  # Time that open requests get at the end, s


def http_url(config: ServerConfig, listener: socket.socket) -> str:
    """Return the address of the volunteers' interface, with final slash."""
    scheme = "https" if config.http_certificate else "http"
    host = parse_address(config.http).host
    return f"{scheme}://{bracket(host)}:{listener.getsockname()[1]}/"


class WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: ours stop everything in order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def web_server(config: ServerConfig, app: object, *, tls: bool = True) -> WebServer:
    """Return the server of an ASGI application, not started.

    `tls` False is for what listens on loopback only, whatever the project does.
    """
    settings = uvicorn.Config(
        app,  # type: ignore[arg-type]  # any ASGI application
        log_level="warning",
        access_log=False,
        lifespan="off",
        # uvicorn itself waits for ever for the rest of a request's head.
        http=TimedProtocol,
        proxy_headers=bool(config.trusted_proxy),  # else who calls is who connects
        forwarded_allow_ips=config.trusted_proxy,
        timeout_graceful_shutdown=int(GRACE_S),
        ssl_certfile=(config.http_certificate or None) if tls else None,
        ssl_keyfile=(config.http_key or None) if tls else None,
    )
    return WebServer(settings)


async def wait_until_started(web: WebServer, serving: asyncio.Task[None]) -> None:
    """Wait until uvicorn accepts; it offers a flag and no event."""
    pause = asyncio.Event()
    while not web.started and not serving.done():
        try:
            await asyncio.wait_for(pause.wait(), 0.01)
        except TimeoutError:
            pass


async def stop_web(web: WebServer, serving: asyncio.Task[None]) -> None:
    """End the server, open requests within `GRACE_S`."""
    web.should_exit = True
    await serving


AUDIT_PAGES = "/audit/"  # Where a face shows the log to people


@dataclass(frozen=True, slots=True)
class PublicPlace:
    """What a face may know of the server that it is mounted in."""

    data: Path  # the data directory; a face only reads, and only what is public
    url: str  # of the server as it is reached, with final slash


# Returns the routes of one face; called once, before the server listens
Face = Callable[[PublicPlace], Sequence[BaseRoute]]
