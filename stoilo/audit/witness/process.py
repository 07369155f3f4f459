"""A witness as a server: the tlog-witness addresses over HTTP, bounded in every direction.

    POST /add-checkpoint                 a log asks for a cosignature
    GET  /<sha256hex(origin)>/checkpoint a monitor asks what was cosigned last

Requests carry their own proof (the log's signature), so there are no accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoilo.audit.format.note import VerifierKey
from stoilo.audit.witness.keys import load_witness_key
from stoilo.audit.witness.protocol import MAX_REQUEST_BYTES
from stoilo.audit.witness.service import STORE_FILE, WitnessService, WitnessStore
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.listen import bracket, listen, parse_address

LOGGER = logging.getLogger(__name__)
BODY_S = 10.0
MAX_CONNECTIONS = 256
GRACE_S = 2
EVIDENCE_DIRECTORY = "evidence"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class WitnessSettings:
    """How one witness runs."""

    data: Path  # its own directory, with the key of `make_witness_key`
    listen: str  # host:port
    # reads the keys of the logs that it watches; again on SIGHUP
    logs: Callable[[], Sequence[VerifierKey]]
    certificate: Path | None = None  # PEM file, needed beyond loopback
    certificate_key: Path | None = None  # PEM file of its key


def run_witness(settings: WitnessSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; calls `ready` with the URL once it answers.

    Raises:
        UsageError: ``STO-R090`` beyond loopback without TLS.
        TrustError: ``STO-L106``, ``STO-L110``.
        InternalError: ``STO-U006`` the address cannot be bound.
    """
    _check_tls(settings)
    key = load_witness_key(settings.data)
    store = WitnessStore(settings.data / STORE_FILE, key.vkey)
    with contextlib.closing(store):
        service = WitnessService(
            key,
            settings.logs(),
            store,
            clock=lambda: int(time.time()),
            evidence=settings.data / EVIDENCE_DIRECTORY,
        )
        asyncio.run(_serve(settings, service, ready))


def create_witness_app(service: WitnessService) -> Starlette:
    """Return the web application of one witness."""

    async def add_checkpoint(request: Request) -> Response:
        """Answer a log."""
        body = await _read_body(request)
        if body is None:
            return PlainTextResponse("the request is too long or too slow\n", 413)
        try:
            answer = await run_in_threadpool(service.add_checkpoint, body)
        except StoiloError as error:
            return PlainTextResponse(f"{error.code}\n", 500)
        # as a header: a media type would get a charset that the protocol does not name
        headers = {"content-type": answer.media_type}
        return Response(answer.body, answer.status, headers)

    async def latest(request: Request) -> Response:
        """Answer a monitor."""
        name = str(request.path_params["origin_hash"])
        if not _HASH.fullmatch(name):
            return PlainTextResponse("not found\n", 404)
        try:
            note = await run_in_threadpool(service.latest, name)
        except StoiloError as error:
            return PlainTextResponse(f"{error.code}\n", 500)
        if note is None:
            return PlainTextResponse("not found\n", 404)
        headers = {"cache-control": "no-cache"}
        return Response(note, media_type="text/plain; charset=utf-8", headers=headers)

    return Starlette(
        routes=[
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", latest, methods=["GET"]),
        ]
    )


async def _read_body(request: Request) -> bytes | None:
    """Return a request's body, None when it is too long or comes too slowly."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_REQUEST_BYTES:
                    return None
    except (TimeoutError, ClientDisconnect):
        return None
    return bytes(body)


def _check_tls(settings: WitnessSettings) -> None:
    """Refuse to be reachable from elsewhere without TLS."""
    has_tls = settings.certificate is not None and settings.certificate_key is not None
    if not parse_address(settings.listen).loopback and not has_tls:
        raise UsageError(
            "STO-R090",
            f"{settings.listen} is not a loopback address and has no TLS",
            hint="give --certificate and --certificate-key, or listen on 127.0.0.1",
        )


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


async def _serve(
    settings: WitnessSettings, service: WitnessService, ready: Callable[[str], None]
) -> None:
    """Listen, say where, and serve until told to stop."""
    listener = listen(settings.listen)
    listener.listen(MAX_CONNECTIONS)
    scheme = "http" if settings.certificate is None else "https"
    host = bracket(parse_address(settings.listen).host)
    server = _Server(
        uvicorn.Config(
            create_witness_app(service),
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.certificate_key,
        )
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, server)
    loop.add_signal_handler(signal.SIGHUP, _reload, settings, service)
    # A bound and listening socket takes connections before uvicorn has begun.
    ready(f"{scheme}://{host}:{listener.getsockname()[1]}/")
    await server.serve(sockets=[listener])


def _stop(server: _Server) -> None:
    server.should_exit = True


def _reload(settings: WitnessSettings, service: WitnessService) -> None:
    """Watch the logs that are named now; what cannot be read changes nothing."""
    try:
        service.watch(settings.logs())
    except StoiloError as error:
        LOGGER.warning("the logs stay as they were: %s", error)
