"""The project's web face: master page, accounts, scheduler, downloads, uploads.

Whatever arrives is bounded before it is read: bodies in size and in time, numbers of
account calls per address. Bodies of uploads go to disk piece by piece. Every request
ends in an answer; our errors become BOINC's forms and codes, anything else a plain 500.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stoilo.core.boinc.messages import SchedulerReply
from stoilo.core.errors import (
    DeniedError,
    InternalError,
    StoiloError,
    TrustError,
    UsageError,
)
from stoilo.server.engines.embedded.web.account_routes import people_routes
from stoilo.server.engines.embedded.web.body_limit import BodyPace, drain, read_pieces
from stoilo.server.engines.embedded.web.people_pages import (
    Front,
    render_front,
    render_html,
)
from stoilo.server.engines.embedded.web.rate_limit import (
    CallLimits,
    CallRates,
    SchedulerDoor,
)
from stoilo.server.engines.embedded.web.refusal_log import RefusalLog
from stoilo.server.engines.embedded.web.replies import (
    render_config,
    render_reply,
    render_upload_reply,
)
from stoilo.server.engines.embedded.web.requests import (
    UPLOAD_HEAD_BYTES,
    SizeQuery,
    parse_upload,
)
from stoilo.server.engines.embedded.workunits.uploads import UploadHead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.engine import EmbeddedEngine
    from stoilo.server.engines.embedded.workunits.uploads import Incoming


class PathPrefix:
    """An ASGI application seen below `prefix`, for example ``/stoilo/``."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; routes do not see the prefix."""
        if self._prefix and f"{scope.get('path', '')}/".startswith(f"{self._prefix}/"):
            scope = {**scope, "root_path": self._prefix}
        await self._app(scope, receive, send)


XML = "text/xml; charset=utf-8"
BYTES = "application/octet-stream"
ANSWERED_AT_ONCE = 32  # scheduler calls; each may wait for the database
KEY_CHARS = 200
_TOKEN = re.compile(r"[0-9a-f]{48}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Bounds of the web face."""

    project: str = "stoilo"  # the project's name
    pages: str = ""  # where people read the audit log, empty when there are no pages
    front: Front = field(default_factory=Front)  # what the front page tells
    bodies: BodyPace = field(default_factory=BodyPace)  # how slowly a body may come
    calls: CallLimits = field(default_factory=CallLimits)  # how often may be called
    # longest time an empty answer is held for a volunteer who asks for it, s
    hold_s: float = 5.0


def create_project_app(
    engine: EmbeddedEngine,  # the engine behind it
    base_url: str,  # the project's master URL with final slash, as volunteers reach it
    *,
    options: HttpOptions | None = None,  # bounds
    # monotonic seconds, for the rate limit
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """Return the ASGI application of the project."""
    options = options or HttpOptions()
    rates = CallRates(options.calls, clock)
    face = _Face(engine, base_url, options, rates)
    routes = [
        Route("/", face.master_page, methods=["GET"]),
        Route("/get_project_config.php", face.config, methods=["GET"]),
        Route("/sched", face.scheduler, methods=["POST"]),
        Route("/download/{token}", face.download, methods=["GET"]),
        Route("/upload/{token}", face.upload, methods=["POST"]),
        Route("/mirror/file/{digest}", face.shared_file, methods=["GET"]),
        *people_routes(engine, options.project, rates, face.refusals),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(PathPrefix, prefix=urlsplit(base_url).path)],
        exception_handlers={StoiloError: face.plain_error},
    )


class _Face:
    """The handlers of one application."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        base_url: str,
        options: HttpOptions,
        rates: CallRates,
    ) -> None:
        self._engine = engine
        self._base_url = base_url if base_url.endswith("/") else f"{base_url}/"
        self._options = options
        self._door = SchedulerDoor(
            engine.accounts.knows, engine.accounts.is_newcomer, rates, options.bodies
        )
        self._answering = anyio.CapacityLimiter(ANSWERED_AT_ONCE)
        self.refusals = RefusalLog()

    async def plain_error(self, request: Request, error: Exception) -> Response:
        """Answer one of our errors as text: code, message, hint."""
        assert isinstance(error, StoiloError)  # noqa: S101 - registered for it only
        self.refusals.note(request, error.code)
        status = _status_of(error)
        return Response(str(error), status_code=status, media_type="text/plain")

    async def master_page(self, request: Request) -> Response:
        """GET /: the page for who comes here, which also names the scheduler."""
        del request
        options = self._options
        pages = options.pages.removeprefix("/")  # below the project's own path
        return render_html(
            await run_in_threadpool(
                render_front, options.project, self._base_url, options.front, pages
            )
        )

    async def config(self, request: Request) -> Response:
        """GET /get_project_config.php."""
        del request
        config = render_config(
            self._options.project,
            self._base_url,
            await run_in_threadpool(self._engine.platforms),
        )
        return Response(config, media_type=XML)

    async def scheduler(self, request: Request) -> Response:
        """POST /sched: one scheduler RPC; one without news may be held, if asked.

        Reports are stored at once, whenever the answer that acknowledges them goes.
        """
        parsed = await self._door.admit(request)
        if isinstance(parsed, SchedulerReply):
            self.refusals.note_reply(request, parsed)
            return Response(render_reply(parsed, self._options.project), media_type=XML)
        offers = self._engine.offers
        seen = offers.count
        address = request.client.host if request.client else ""
        reply = await self._answer(parsed, address)
        acks, parsed = (
            reply.acks,
            replace(parsed, results=(), wait_s=_hold(parsed, reply)),
        )
        limit = time.monotonic() + min(parsed.wait_s, self._options.hold_s)
        while _is_empty(reply) and (left := limit - time.monotonic()) > 0:
            now = await offers.wait(seen, left)
            # it may have called again meanwhile
            if now == seen or await request.is_disconnected():
                break
            seen = now
            reply = replace(await self._answer(parsed, address), acks=acks)
        self.refusals.note_reply(request, reply)
        text = render_reply(replace(reply, waits=True), self._options.project)
        return Response(text, media_type=XML)

    async def _answer(self, request: SchedulerRequest, address: str) -> SchedulerReply:
        """Let the scheduler answer, in a thread of those that only do this."""
        now = self._engine.now()
        handle = self._engine.scheduler.handle
        return await anyio.to_thread.run_sync(
            handle, request, self._base_url, now, address, limiter=self._answering
        )

    async def download(self, request: Request) -> Response:
        """GET or HEAD /download/TOKEN, with Range."""
        token = request.path_params["token"]
        found = None
        if _TOKEN.fullmatch(token):
            found = await run_in_threadpool(self._engine.find_download, token)
        if found is None:
            raise DeniedError("STO-E014", "there is no such file")
        headers = {"etag": f'"{found.digest}"'}
        if found.content is None:
            return _File(found.path, media_type=BYTES, headers=headers)
        asked = request.headers.get("range", "")
        return _inline_file(found.content, asked, headers)

    async def shared_file(self, request: Request) -> Response:
        """GET or HEAD /mirror/file/DIGEST: for caches that have the mirrors' key."""
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        digest, path = request.path_params["digest"], None
        if kind == "Bearer" and _DIGEST.fullmatch(digest):
            find = self._engine.find_shared
            path = await run_in_threadpool(find, digest, key[:KEY_CHARS])
        if path is None:
            raise DeniedError("STO-E014", "there is no such file")
        # `public`: a shared cache keeps no answer to an authorised request without it.
        return _File(
            path,
            media_type=BYTES,
            headers={
                "cache-control": "public, max-age=31536000, immutable",
                "etag": f'"{digest}"',
            },
        )

    async def upload(self, request: Request) -> Response:
        """POST /upload/TOKEN: a size query or a file."""
        pieces = read_pieces(request, self._options.bodies)
        try:
            body = await self._upload(request, pieces)
        except (UsageError, DeniedError) as error:
            self.refusals.note(request, error.code)
            body = render_upload_reply(-1, why=str(error))
        except (TrustError, InternalError) as error:
            self.refusals.note(request, error.code)
            body = render_upload_reply(1, why=str(error))
        await drain(pieces)
        return Response(body, media_type=XML)

    async def _upload(self, request: Request, pieces: AsyncIterator[bytes]) -> bytes:
        begin = b""
        async for chunk in pieces:
            begin += chunk
            if b"<data>\n" in begin or len(begin) > UPLOAD_HEAD_BYTES:
                break
        head, cut, data = begin.partition(b"<data>\n")
        try:
            parsed = parse_upload(head[: UPLOAD_HEAD_BYTES + 1] + cut)
        except TrustError as error:
            raise UsageError("STO-E030", error.message) from error
        token, uploads = request.path_params["token"], self._engine.uploads
        if isinstance(parsed, SizeQuery):
            held = await run_in_threadpool(uploads.size_held, token, parsed.name)
            return render_upload_reply(0, size=held)
        await self._receive(token, parsed, data, pieces)
        return render_upload_reply(0)

    async def _receive(
        self, token: str, head: UploadHead, data: bytes, pieces: AsyncIterator[bytes]
    ) -> None:
        desk = self._engine.uploads.receive(token, head)
        incoming: Incoming | None = await run_in_threadpool(desk.__enter__)
        try:
            if incoming is not None:
                await self._copy(incoming, head, data, pieces)
        except BaseException as error:
            desk.__exit__(type(error), error, error.__traceback__)
            raise
        await run_in_threadpool(desk.__exit__, None, None, None)

    async def _copy(
        self,
        incoming: Incoming,
        head: UploadHead,
        data: bytes,
        pieces: AsyncIterator[bytes],
    ) -> None:
        """Write what has arrived and what comes, in a time that fits the size."""
        try:
            async with asyncio.timeout(self._options.bodies.seconds(head.nbytes)):
                incoming.write(data)
                async for chunk in pieces:
                    incoming.write(chunk)
        except TimeoutError as error:
            raise InternalError("STO-E034", "the upload was too slow") from error


def _hold(request: SchedulerRequest, reply: SchedulerReply) -> float:
    """Return how long a host wants to wait for news, s; not with reports that are left."""
    return request.wait_s if len(reply.acks) == len(request.results) else 0.0


class _File(FileResponse):
    """A file in few pieces: each costs a thread's turn."""

    chunk_size = 1024 * 1024


def _is_empty(reply: SchedulerReply) -> bool:
    return not (reply.results or reply.aborts or reply.host_id or reply.bad_key)


def _inline_file(content: bytes, asked: str, headers: dict[str, str]) -> Response:
    headers["accept-ranges"] = "bytes"
    match = _RANGE.fullmatch(asked)
    if match is None:
        return Response(content, media_type=BYTES, headers=headers)
    start = int(match[1])
    end = min(int(match[2]) if match[2] else len(content), len(content) - 1)
    if start > end:
        headers["content-range"] = f"bytes */{len(content)}"
        return Response(status_code=416, headers=headers)
    headers["content-range"] = f"bytes {start}-{end}/{len(content)}"
    piece = content[start : end + 1]
    return Response(piece, status_code=206, media_type=BYTES, headers=headers)


def _status_of(error: StoiloError) -> int:
    if error.code == "STO-E012":
        return 413
    match error:
        case UsageError() | TrustError():
            return 400
        case DeniedError():
            return 404
        case _:
            return 503
