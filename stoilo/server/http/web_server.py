"""The web server of `stoilo up`: its socket, its address, its start and its stop.

The server knows no page for people. `run_server(…, faces=…)` mounts what the command line
hands to it, so that pages stay above the server in the layers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from stoilo.core.listen import bracket, parse_address
from stoilo.server.config import ServerConfig

log = logging.getLogger(__name__)
GRACE_S: Final = 2.0  # Time that open requests get at the end, s

# From the connection, or the head's first byte on a used one, to its last, s
HEAD_S: Final = 20.0

MOST_CONNECTIONS: Final = 2048
MOST_OF_ADDRESS: Final = 256  # Not for the trusted proxy's, from which everybody comes


def http_url(config: ServerConfig, listener: socket.socket) -> str:
    """Return the address of the volunteers' interface, with final slash."""
    scheme = "https" if config.http_certificate else "http"
    host = parse_address(config.http).host
    return f"{scheme}://{bracket(host)}:{listener.getsockname()[1]}/"


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1; a connection that owes a head for `head_s` is closed.

    So is a new one of which there are `most` already, or `most_of_address` of its address.
    uvicorn bounds a head in bytes and an idle connection in time, but waits for ever for one
    whose head comes a byte at a time, and takes any number, each with up to 128 KiB of what
    nobody has asked for yet. Bodies have bounds of their own where they are read.
    """

    head_s = HEAD_S
    most = MOST_CONNECTIONS
    most_of_address = MOST_OF_ADDRESS

    def __init__(self, *arguments: Any, **words: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **words)
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        if self._is_one_too_many():
            log.info("a connection too many from %s [STO-E012]", self._address(self))
            transport.close()
            return
        self._wait_for_head()

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > self.most:
            return True
        mine = self._address(self)
        if not mine or mine in str(self.config.forwarded_allow_ips).split(","):
            return False
        same = sum(self._address(one) == mine for one in self.connections)
        return same > self.most_of_address

    @staticmethod
    def _address(connection: Any) -> str:  # noqa: ANN401 - uvicorn's protocols
        client = getattr(connection, "client", None)
        return str(client[0]) if client else ""

    def data_received(self, data: bytes) -> None:
        """Take bytes; a whole head ends the wait."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(self.head_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        log.info("a request's head did not come in %.0f s [STO-E012]", self.head_s)
        self.transport.close()


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
