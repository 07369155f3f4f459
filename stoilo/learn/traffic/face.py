"""A node's face to volunteers: what it holds of versions, by digest, over HTTP.

GET and HEAD of ``/DIGEST``, whole or a range, and nothing else: no list, no sums of a round.
Who knows a digest may read the file, as at any mirror. Connections, heads and the time of a
download are bounded; each whole or partial one that was large enough is measured, and told
as bytes and seconds of the client's network, never of its address.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoilo.core.background import Repeater
from stoilo.core.errors import UsageError
from stoilo.core.listen import listen, parse_address
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.holdings import Holdings
from stoilo.server.config import ServerConfig
from stoilo.server.engines.embedded.files.holders import network_of
from stoilo.server.engines.embedded.files.mirrors import LEAST_BYTES, parse_mirrors
from stoilo.server.http.web_server import http_url, web_server

BEGIN_S: Final = 30.0  # that a download has, and a second more for so many bytes:
SLOWEST: Final = 16 * 1024
SILENCE_MS: Final = 30_000  # in which a client takes nothing, and is hung up on
REPORT_S: Final = 2.0  # between two reports
STOP_S: Final = 10.0
_UNSENT: Final = 128 * 1024  # bytes that the kernel takes beyond what is under way
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - not bound to
Note = Callable[[str, int, float], None]  # client's address, bytes, s
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class VolunteerFace:
    """The port and what is told of it.

    Args:
        address: where it listens, ``host:port``; beyond loopback it needs a certificate.
        url: as volunteers reach it, with final slash; empty: as bound.
        certificate: PEM file, with `key`; empty: plain HTTP.
        key: PEM file.

    Raises:
        UsageError: ``STO-R090``.
        InternalError: ``STO-U006``, the port is taken.
    """

    def __init__(
        self, address: str, url: str = "", certificate: str = "", key: str = ""
    ) -> None:
        place = parse_address(address)
        if not (place.loopback or (certificate and key)):
            raise UsageError(
                "STO-R090",
                f"{address} is not a loopback address and has no TLS",
                hint="give --certificate and --key, or put a proxy before 127.0.0.1",
            )
        if not url and place.host in _EVERYWHERE:
            raise UsageError("STO-R090", f"no volunteer can call {address}: give --url")
        parse_mirrors(url)
        self._listener = listen(address)
        # Accepted sockets inherit both. A download would otherwise seem to end when the
        # kernel has the bytes, and a client who reads nothing would keep his connection.
        for option, value in (
            (socket.TCP_NOTSENT_LOWAT, _UNSENT),
            (socket.TCP_USER_TIMEOUT, SILENCE_MS),
        ):
            self._listener.setsockopt(socket.IPPROTO_TCP, option, value)
        self._listener.listen()  # before anybody is told of it
        self._config = ServerConfig(
            Path(), http=address, http_certificate=certificate, http_key=key
        )
        self.url = url or http_url(self._config, self._listener)

    def start(self, holdings: Holdings, tell: Callable[[w.Report], None]) -> None:
        """Serve what is held, in a thread, and report downloads."""
        served = Downloads()
        self._web = web_server(self._config, self.app(holdings, served.note))
        self._thread = threading.Thread(
            target=self._web.run, args=([self._listener],), daemon=True
        )
        self._reports = Repeater("reach", [lambda: served.report(tell)], REPORT_S)
        self._thread.start()
        self._reports.start()

    def app(self, holdings: Holdings, note: Note) -> ASGIApp:
        """Return the ASGI application that is served."""
        return versions_app(holdings, note)

    def stop(self) -> None:
        """End both, open downloads soon."""
        self._reports.stop(STOP_S)
        self._web.should_exit = True
        self._thread.join(STOP_S)


class Downloads:
    """The newest download of each network since the last report; any thread may call."""

    def __init__(self) -> None:
        self._newest, self._lock = dict[str, tuple[int, float]](), threading.Lock()

    def note(self, address: str, nbytes: int, seconds: float) -> None:
        """Note one; of more networks than a report holds, some are left out."""
        network = network_of(address)
        with self._lock:
            if network in self._newest or len(self._newest) < w.MOST_NETWORKS:
                self._newest[network] = nbytes, seconds

    def report(self, tell: Callable[[w.Report], None]) -> int:
        """Tell what there is, and forget it; return how much it was."""
        with self._lock:
            found, self._newest = self._newest, {}
        if found:
            tell(w.Reached(found))
        return 0  # once in a while is enough


def versions_app(
    holdings: Holdings,
    note: Note,
    # s that a download of so many bytes may take
    allow: Callable[[int], float] = lambda size: BEGIN_S + size / SLOWEST,
) -> Starlette:
    """Return the ASGI application."""

    def version(request: Request) -> Response:
        digest = request.path_params["digest"]
        path = holdings.find(digest) if _DIGEST.fullmatch(digest) else None
        if path is None or not path.exists():
            return Response("there is no such file", 404, media_type="text/plain")
        return _Measured(path, digest, note, allow)

    app = Starlette(routes=[Route("/{digest}", version, methods=["GET"])])
    app.router.redirect_slashes = False
    return app


class _Measured(FileResponse):
    """A file in few pieces, with a time limit; tells how long its bytes took."""

    chunk_size = 256 * 1024

    def __init__(
        self,
        path: Path,
        digest: str,
        note: Note,
        allow: Callable[[int], float],
    ) -> None:
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "etag": f'"{digest}"',
        }
        kind = "application/octet-stream"
        super().__init__(path, media_type=kind, headers=headers)
        self._note, self._most_s = note, allow(path.stat().st_size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, or give a client up that is gone or too slow."""
        request, sent, begun = Request(scope, receive), 0, time.monotonic()

        async def count(message: Message) -> None:
            nonlocal sent
            if await request.is_disconnected():  # or all of it would be read in vain
                raise ClientDisconnect
            await send(message)
            sent += len(message.get("body", b""))

        try:
            async with asyncio.timeout(self._most_s):
                await super().__call__(scope, receive, count)
        except (ClientDisconnect, TimeoutError):
            return  # the server then closes the connection
        if sent > LEAST_BYTES and request.client is not None:
            self._note(request.client.host, sent, time.monotonic() - begun)
