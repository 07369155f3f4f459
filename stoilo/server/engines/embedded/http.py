"""The project's web face: master page, accounts, scheduler, downloads, uploads.

Whatever arrives is bounded before it is read: bodies in size and in time, numbers of
account calls per address. Bodies of uploads go to disk piece by piece. Every request
ends in an answer; our errors become BOINC's forms and codes, anything else a plain 500.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
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
from stoilo.server.engines.embedded.bodies import BodyPace, read_body, read_pieces
from stoilo.server.engines.embedded.pathprefix import PathPrefix
from stoilo.server.engines.embedded.xml import (
    UPLOAD_HEAD_BYTES,
    ProjectConfig,
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

    from starlette.requests import Request

    from stoilo.executor.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.accounts import Account
    from stoilo.server.engines.embedded.engine import EmbeddedEngine
    from stoilo.server.engines.embedded.uploads import Incoming

__all__ = ["HttpOptions", "RateLimit", "create_project_app"]

log = logging.getLogger(__name__)

XML = "text/xml; charset=utf-8"
ACCOUNT_BYTES = 8 * 1024
HOLD_STEP_S = 0.05  # how often a held answer looks for work
# BOINC's error numbers (lib/error_numbers.h)
ERR_NOT_FOUND = -161
ERR_BAD_EMAIL = -205
ERR_BAD_PASSWORD = -206
ERR_TRY_LATER = -183
ERR_CREATION_DISABLED = -208
_TOKEN = re.compile(r"[0-9a-f]{48}")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Bounds of the web face.

    Attributes:
        project: the project's name.
        pages: where people read the audit log, empty when there are no pages.
        bodies: how slowly a body may come.
        account_calls_per_minute: account calls allowed per address.
        account_creation: whether accounts can be made over the web; else the operator
            makes them (`stoilo boinc account`).
        hold_s: longest time an empty answer is held for a volunteer who asks for it, s.
    """

    project: str = "stoilo"
    pages: str = ""
    bodies: BodyPace = field(default_factory=BodyPace)
    account_calls_per_minute: int = 10
    account_creation: bool = True
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
        Route("/lookup_account.php", face.find_account, methods=["GET", "POST"]),
        Route("/create_account.php", face.make_account, methods=["GET", "POST"]),
        Route("/sched", face.scheduler, methods=["POST"]),
        Route("/download/{token}", face.download, methods=["GET"]),
        Route("/upload/{token}", face.upload, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(PathPrefix, prefix=urlsplit(base_url).path)],
        exception_handlers={StoiloError: _plain_error},
    )


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
        config = ProjectConfig(
            name=self._options.project,
            master_url=self._base_url,
            platforms=await run_in_threadpool(self._engine.platforms),
            account_creation=self._options.account_creation,
        )
        return Response(render_config(config), media_type=XML)

    async def find_account(self, request: Request) -> Response:
        """GET or POST: look up an account."""
        return await self._account(request, self._engine.accounts.find)

    async def make_account(self, request: Request) -> Response:
        """GET or POST: make an account, or look it up if it is there."""
        if not self._options.account_creation:
            body = render_account_error(
                ERR_CREATION_DISABLED, "accounts are made by the project's operator"
            )
            return Response(body, media_type=XML)
        create, now = self._engine.accounts.create, self._engine.now()
        return await self._account(request, lambda one, two: create(one, two, now))

    async def _account(
        self, request: Request, find: Callable[[str, str], Account]
    ) -> Response:
        """Answer an account call; `find` takes address and password hash."""
        address = request.client.host if request.client else ""
        if not self._limit.allow(address):
            body = render_account_error(ERR_TRY_LATER, "too many calls [STO-E013]")
            return Response(body, status_code=429, media_type=XML)
        fields = await self._account_fields(request)
        words = fields.get("email_addr", ""), fields.get("passwd_hash", "")
        try:
            found = await run_in_threadpool(find, *words)
        except UsageError as error:
            return Response(render_account_error(ERR_BAD_EMAIL, str(error)))
        except DeniedError as error:
            return Response(render_account_error(ERR_BAD_PASSWORD, str(error)))
        return Response(render_account(found.key), media_type=XML)

    async def scheduler(self, request: Request) -> Response:
        """POST /sched: one scheduler RPC; an empty answer may be held, if asked."""
        most = BOUNDS.scheduler_request_bytes
        body = await read_body(request, most, self._options.bodies)
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
        asked = request.headers.get("range", "")
        return _inline_file(found.content, asked, etag=f'"{found.digest}"')

    async def upload(self, request: Request) -> Response:
        """POST /upload/TOKEN: a size query or a file."""
        try:
            body = await self._upload(request)
        except (UsageError, DeniedError) as error:
            body = render_upload_reply(-1, why=str(error))
        except (TrustError, InternalError) as error:
            log.info("upload not taken: %s", error)
            body = render_upload_reply(1, why=str(error))
        return Response(body, media_type=XML)

    async def _upload(self, request: Request) -> bytes:
        """Take one upload request; returns the answer."""
        pieces = read_pieces(request, self._options.bodies)
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
        try:
            async with asyncio.timeout(self._options.bodies.seconds(head.nbytes)):
                incoming.write(data)
                async for chunk in pieces:
                    incoming.write(chunk)
        except TimeoutError as error:
            raise InternalError("STO-E034", "the upload was too slow") from error

    async def _account_fields(self, request: Request) -> dict[str, str]:
        """Return the fields of an account call from query or form."""
        text = request.url.query
        if request.method == "POST":
            body = await read_body(request, ACCOUNT_BYTES, self._options.bodies)
            text = body.decode("utf-8", "replace")
        try:
            return dict(parse_qsl(text[:ACCOUNT_BYTES], max_num_fields=16))
        except ValueError as error:
            raise UsageError("STO-E015", "the account call is not readable") from error


def _is_empty(reply: SchedulerReply) -> bool:
    """Say whether a reply has nothing that its host should know at once."""
    news = reply.results or reply.acks or reply.aborts or reply.host_id
    return not (news or reply.bad_key)


def _inline_file(content: bytes, range_header: str, *, etag: str) -> Response:
    """Return a small file, or the part of it that a Range asks for."""
    headers = {"accept-ranges": "bytes", "etag": etag}
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


async def _plain_error(request: Request, error: Exception) -> Response:
    """Answer one of our errors as text: code, message, hint."""
    del request
    assert isinstance(error, StoiloError)  # noqa: S101 - registered for it only
    return Response(str(error), status_code=_status_of(error), media_type="text/plain")
