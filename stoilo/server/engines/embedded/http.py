"""The project's web face: master page, accounts, scheduler, downloads, uploads.

Whatever arrives is bounded before it is read: bodies in size and in time, numbers of
account calls per address. Bodies of uploads go to disk piece by piece. Every request
ends in an answer; our errors become BOINC's forms and codes, anything else a plain 500.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stoilo.core.errors import (
    DeniedError,
    InternalError,
    StoiloError,
    TrustError,
    UsageError,
)
from stoilo.core.limits import BOUNDS
from stoilo.server.engines.embedded.refusals import RefusalLog
from stoilo.server.engines.embedded.xml import (
    UPLOAD_HEAD_BYTES,
    SizeQuery,
    UploadHead,
    parse_request,
    parse_upload,
    render_account,
    render_account_error,
    render_config,
    render_master_page,
    render_reply,
    render_upload_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stoilo.executor.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.engine import EmbeddedEngine
    from stoilo.server.engines.embedded.uploads import Incoming

__all__ = ["HttpOptions", "RateLimit", "create_project_app"]

XML = "text/xml; charset=utf-8"
ACCOUNT_BYTES = 8 * 1024
HOLD_STEP_S = 0.05  # how often a held answer looks for work
# BOINC's error numbers (lib/error_numbers.h)
ERR_NOT_FOUND = -161
ERR_BAD_EMAIL = -205
ERR_BAD_PASSWORD = -206
ERR_TRY_LATER = -183
_TOKEN = re.compile(r"[0-9a-f]{48}")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Bounds of the web face.

    Attributes:
        project: the project's name.
        pages: where people read the audit log, empty when there are no pages.
        body_pause_s: longest pause inside a body, s.
        body_bytes_per_s: slowest acceptable upload, bytes/s, after a first minute.
        account_calls_per_minute: account calls allowed per address.
        hold_s: longest time an empty answer is held for a volunteer who asks for it, s.
    """

    project: str = "stoilo"
    pages: str = ""
    body_pause_s: float = 20.0
    body_bytes_per_s: int = 16 * 1024
    account_calls_per_minute: int = 10
    hold_s: float = 5.0


class RateLimit:
    """A bounded table of token buckets, one per address."""

    def __init__(
        self, per_minute: int, *, addresses: int = 4096, clock: Callable[[], float]
    ) -> None:
        self._rate = per_minute / 60.0
        self._most = float(per_minute)
        self._addresses = addresses
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Take one token of `address`; False when it has none left."""
        now = self._clock()
        level, since = self._buckets.pop(address, (self._most, now))
        level = min(self._most, level + (now - since) * self._rate)
        allowed = level >= 1.0
        self._buckets[address] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > self._addresses:
            self._buckets.popitem(last=False)
        return allowed


def create_project_app(
    engine: EmbeddedEngine,
    base_url: str,
    *,
    options: HttpOptions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """Return the ASGI application of the project.

    Args:
        engine: the engine behind it.
        base_url: the project's master URL with final slash, as volunteers reach it.
        options: bounds.
        clock: monotonic seconds, for the rate limit.
    """
    face = _Face(engine, base_url, options or HttpOptions(), clock)
    routes = [
        Route("/", face.master_page, methods=["GET"]),
        Route("/get_project_config.php", face.config, methods=["GET"]),
        Route("/lookup_account.php", face.account, methods=["GET", "POST"]),
        Route("/create_account.php", face.account, methods=["GET", "POST"]),
        Route("/sched", face.scheduler, methods=["POST"]),
        Route("/download/{token}", face.download, methods=["GET"]),
        Route("/upload/{token}", face.upload, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={StoiloError: face.plain_error})


class _Face:
    """The handlers of one application."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        base_url: str,
        options: HttpOptions,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._base_url = base_url if base_url.endswith("/") else f"{base_url}/"
        self._options = options
        self._limit = RateLimit(options.account_calls_per_minute, clock=clock)
        self._refusals = RefusalLog()

    async def plain_error(self, request: Request, error: Exception) -> Response:
        """Answer one of our errors as text: code, message, hint."""
        assert isinstance(error, StoiloError)  # noqa: S101 - registered for it only
        self._refusals.note(request, error.code)
        status = _status_of(error)
        return Response(str(error), status_code=status, media_type="text/plain")

    async def master_page(self, request: Request) -> Response:
        """GET /: the page that names the scheduler."""
        del request
        scheduler = f"{self._base_url}sched"
        options = self._options
        page = render_master_page(options.project, scheduler, options.pages)
        return Response(page, media_type="text/html; charset=utf-8")

    async def config(self, request: Request) -> Response:
        """GET /get_project_config.php."""
        del request
        config = render_config(self._options.project, self._base_url)
        return Response(config, media_type=XML)

    async def account(self, request: Request) -> Response:
        """GET or POST: make or look up an account."""
        address = request.client.host if request.client else ""
        if not self._limit.allow(address):
            self._refusals.note(request, "STO-E013")
            body = render_account_error(ERR_TRY_LATER, "too many calls [STO-E013]")
            return Response(body, status_code=429, media_type=XML)
        fields = await self._account_fields(request)
        email = fields.get("email_addr", "")
        password = fields.get("passwd_hash", "")
        try:
            if request.url.path.startswith("/create"):
                accounts, now = self._engine.accounts, self._engine.now()
                made = await run_in_threadpool(accounts.create, email, password, now)
            else:
                find = self._engine.accounts.find
                made = await run_in_threadpool(find, email, password)
        except UsageError as error:
            self._refusals.note(request, error.code)
            return Response(render_account_error(ERR_BAD_EMAIL, str(error)))
        except DeniedError as error:
            self._refusals.note(request, error.code)
            return Response(render_account_error(ERR_BAD_PASSWORD, str(error)))
        return Response(render_account(made.key), media_type=XML)

    async def scheduler(self, request: Request) -> Response:
        """POST /sched: one scheduler RPC; an empty answer may be held, if asked."""
        body = await self._body(request, BOUNDS.scheduler_request_bytes)
        parsed = await run_in_threadpool(parse_request, body)
        seen = self._engine.changes
        reply = await self._answer(parsed)
        hold = min(parsed.wait_s, self._options.hold_s)
        limit = time.monotonic() + hold
        while hold and _is_empty(reply) and time.monotonic() < limit:
            await asyncio.sleep(HOLD_STEP_S)
            if self._engine.changes != seen:
                seen = self._engine.changes
                reply = await self._answer(parsed)
        self._refusals.note_reply(request, reply)
        text = render_reply(replace(reply, waits=True), self._options.project)
        return Response(text, media_type=XML)

    async def _answer(self, request: SchedulerRequest) -> SchedulerReply:
        """Let the scheduler answer, in a thread of its own."""
        now = self._engine.now()
        handle = self._engine.scheduler.handle
        return await run_in_threadpool(handle, request, self._base_url, now)

    async def download(self, request: Request) -> Response:
        """GET or HEAD /download/TOKEN, with Range."""
        token = request.path_params["token"]
        found = None
        if _TOKEN.fullmatch(token):
            found = await run_in_threadpool(self._engine.find_download, token)
        if found is None:
            raise DeniedError("STO-E014", "there is no such file")
        if found.path is not None:
            return FileResponse(
                found.path,
                media_type="application/octet-stream",
                headers={"etag": f'"{found.digest}"'},
            )
        assert found.content is not None  # noqa: S101 - inline or on disk
        return _inline_file(found.content, request.headers.get("range", ""))

    async def upload(self, request: Request) -> Response:
        """POST /upload/TOKEN: a size query or a file."""
        try:
            body = await self._upload(request)
        except (UsageError, DeniedError) as error:
            self._refusals.note(request, error.code)
            body = render_upload_reply(-1, why=str(error))
        except (TrustError, InternalError) as error:
            self._refusals.note(request, error.code)
            body = render_upload_reply(1, why=str(error))
        return Response(body, media_type=XML)

    async def _upload(self, request: Request) -> bytes:
        """Take one upload request; returns the answer."""
        pieces = self._pieces(request)
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
        """Bring the raw bytes of an upload to disk."""
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
        seconds = 60 + head.nbytes / self._options.body_bytes_per_s
        try:
            async with asyncio.timeout(seconds):
                incoming.write(data)
                async for chunk in pieces:
                    incoming.write(chunk)
        except TimeoutError as error:
            raise InternalError("STO-E034", "the upload was too slow") from error

    async def _account_fields(self, request: Request) -> dict[str, str]:
        """Return the fields of an account call from query or form."""
        text = request.url.query
        if request.method == "POST":
            body = await self._body(request, ACCOUNT_BYTES)
            text = body.decode("utf-8", "replace")
        try:
            return dict(parse_qsl(text[:ACCOUNT_BYTES], max_num_fields=16))
        except ValueError as error:
            raise UsageError("STO-E015", "the account call is not readable") from error

    async def _body(self, request: Request, most: int) -> bytes:
        """Return a whole body of at most that many bytes."""
        body = bytearray()
        try:
            async with asyncio.timeout(60 + most / self._options.body_bytes_per_s):
                async for chunk in self._pieces(request):
                    body += chunk
                    if len(body) > most:
                        raise UsageError("STO-E012", "the request is too large")
        except TimeoutError as error:
            raise UsageError("STO-E012", "the request came too slowly") from error
        return bytes(body)

    async def _pieces(self, request: Request) -> AsyncIterator[bytes]:
        """Yield a body's pieces; a long pause or a lost connection ends it."""
        stream = request.stream().__aiter__()
        while True:
            try:
                async with asyncio.timeout(self._options.body_pause_s):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise InternalError("STO-E034", "the body stopped coming") from error
            except ClientDisconnect as error:
                raise InternalError("STO-E034", "the connection was lost") from error
            if chunk:
                yield chunk


def _is_empty(reply: SchedulerReply) -> bool:
    """Say whether a reply has nothing that its host should know at once."""
    news = reply.results or reply.acks or reply.aborts or reply.host_id
    return not (news or reply.bad_key)


def _inline_file(content: bytes, range_header: str) -> Response:
    """Return a small file, or the part of it that a Range asks for."""
    headers = {"accept-ranges": "bytes"}
    media = "application/octet-stream"
    match = _RANGE.fullmatch(range_header)
    if match is None:
        return Response(content, media_type=media, headers=headers)
    start = int(match[1])
    end = min(int(match[2]) if match[2] else len(content), len(content) - 1)
    if start > end:
        headers["content-range"] = f"bytes */{len(content)}"
        return Response(status_code=416, headers=headers)
    headers["content-range"] = f"bytes {start}-{end}/{len(content)}"
    piece = content[start : end + 1]
    return Response(piece, status_code=206, media_type=media, headers=headers)


def _status_of(error: StoiloError) -> int:
    """Return the HTTP status of one of our errors."""
    if error.code == "STO-E012":
        return 413
    match error:
        case UsageError() | TrustError():
            return 400
        case DeniedError():
            return 404
        case _:
            return 503
