"""The pages' routes below ``/audit/``; read-only, for anybody.

Every question of a visitor is bounded before it is read, and ends in a page: a wrong one
in 400 or 404, a log that cannot be read in 503.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoilo.audit.log.store import LogPaths
from stoilo.audit.read.reader import open_log
from stoilo.core.errors import StoiloError, UsageError
from stoilo.server.http.web_server import PublicPlace
from stoilo.web.archive import (
    MAX_QUERY_CHARS,
    look,
    name_task,
    parse_query,
    run_query,
)
from stoilo.web.language import FOLDER, Languages
from stoilo.web.pages import PAGE_ENTRIES, Pages
from stoilo.web.timeline import read_timeline
from stoilo.web.wording import proof_name

FOREVER = "public, max-age=31536000, immutable"
_FRESH = "no-cache"
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
STRICT = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def answer(
    request: Request, body: bytes, media_type: str, *, cache: str = _FRESH
) -> Response:
    """Return `body` with the strict headers, or 304 when the reader has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**STRICT, "cache-control": cache, "etag": tag}
    if tag in request.headers.get("if-none-match", "")[:1024]:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def answer_page(request: Request, html: str, status: int = 200) -> Response:
    """Return a page; one that is no success is neither cached nor compared."""
    if status == 200:  # noqa: PLR2004 - HTTP's own number
        return answer(request, html.encode(), "text/html; charset=utf-8")
    headers = {**STRICT, "cache-control": "no-store"}
    return Response(
        html, status, media_type="text/html; charset=utf-8", headers=headers
    )


def answer_download(request: Request, body: bytes, name: str) -> Response:
    """Return a text that a browser saves as the file `name` (ours, plain ASCII)."""
    found = answer(request, body, "text/plain; charset=utf-8")
    found.headers["content-disposition"] = f'attachment; filename="{name}"'
    return found


_MAX_INDEX_DIGITS = 18
_STATUS = {"STO-L171": 404, "STO-L063": 400}
_AT_ONCE = 2  # pages rendered side by side: a long source must not stop the project


def audit_pages(place: PublicPlace) -> list[Route]:
    """Return the routes of the audit pages of the server at `place`."""
    handlers, languages = _Handlers(place), Languages(place.data / FOLDER)
    found = [
        Route("/audit/", handlers.guarded(handlers.index)),
        Route("/audit/search", handlers.guarded(handlers.search)),
        Route("/audit/entry/{index}.tlog-proof", handlers.guarded(handlers.proof)),
        Route("/audit/entry/{index}", handlers.guarded(handlers.entry)),
        Route("/audit/task/{name}", handlers.guarded(handlers.task)),
        Route("/audit/static/{name}", handlers.guarded(handlers.static)),
    ]
    return languages.speak(found)


class _Handlers:
    """The handlers; they run in few threads, which are not those of the project."""

    def __init__(self, place: PublicPlace) -> None:
        self._data = place.data
        self._pages = Pages(place.url)
        self._static = {one.name: one for one in self._pages.assets.values()}
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    def guarded(
        self, handler: Callable[[Request], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return `handler` with our errors as pages, and few of them at once."""

        def work(request: Request) -> Response:
            try:
                return handler(request)
            except StoiloError as error:
                page = self._pages.error(error)
                return answer_page(request, page, _status_of(error))

        async def attempt(request: Request) -> Response:
            return await anyio.to_thread.run_sync(work, request, limiter=self._turns)

        return attempt

    def index(self, request: Request) -> Response:
        """``/audit/?before=N``: the log and its newest entries."""
        text = request.query_params.get("before", "")
        with look(self._data) as view:
            before = _parse_index(text) if text else view.size
            return answer_page(request, self._pages.index(view, before))

    def entry(self, request: Request) -> Response:
        """``/audit/entry/N``: one entry."""
        index = _parse_index(request.path_params["index"])
        with look(self._data) as view:
            entry = view.entry(index)
            if entry is None:
                raise _no_page(f"the published log ends before entry {index}")
            return answer_page(request, self._pages.entry(view, entry))

    def proof(self, request: Request) -> Response:
        """``/audit/entry/N.tlog-proof``: the proof, checked before it is given."""
        index = _parse_index(request.path_params["index"])
        log = open_log(LogPaths.below(self._data).log)
        if index >= log.size:
            raise _no_page(f"the published log ends before entry {index}")
        _, proof = log.prove(index)
        return answer_download(request, proof, proof_name(index))

    def task(self, request: Request) -> Response:
        """``/audit/task/ID``: one task, by its id or commitment."""
        commitment = name_task(request.path_params["name"])
        with look(self._data) as view:
            timeline = read_timeline(view, commitment)
            if timeline is None:
                raise _no_page("the published log does not name this task")
            return answer_page(request, self._pages.task(view, timeline))

    def search(self, request: Request) -> Response:
        """``/audit/search?q=``: entries by number, digest, commitment, code or role."""
        text = request.query_params.get("q", "")
        before = request.query_params.get("before", "")
        shown = text[: MAX_QUERY_CHARS + 1]
        try:
            query = parse_query(text)
        except UsageError as error:
            page = self._pages.search(shown, (), error.hint if text else "")
            return answer_page(request, page, 400 if text else 200)
        with look(self._data) as view:
            end = _parse_index(before) if before else None
            entries = run_query(view, query, PAGE_ENTRIES, end)
            return answer_page(request, self._pages.search(shown, entries, ""))

    def static(self, request: Request) -> Response:
        """``/audit/static/NAME``: style sheet and mark, cached for ever."""
        asset = self._static.get(request.path_params["name"])
        if asset is None:
            raise _no_page("there is no such file")
        return answer(request, asset.data, asset.media_type, cache=FOREVER)


def _parse_index(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_INDEX_DIGITS:
        raise _no_page("an entry has a number, counted from 0")
    return int(text)


def _no_page(message: str) -> UsageError:
    return UsageError("STO-L171", message, hint="see the newest entries")


def _status_of(error: StoiloError) -> int:
    """Return the HTTP status of one of our errors: ours unless the question was wrong."""
    return _STATUS.get(error.code, 503)
