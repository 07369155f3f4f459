"""The public log over HTTP, read-only: each name is checked before any file is touched.

/audit/log/…               checkpoint, policy and tiles, as tlog-tiles names them
/audit/records/<digest>    one record, JSON
/audit/records/tile/<N>    the records of leaves 256 N and on, framed like their entries
/audit/source/<digest>     a source whose submitter chose publication, as plain text
/audit/seen/<N>            checkpoints that executors sent back, 256 rows a page
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoilo.audit.format.merkle import parse_checkpoint
from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import MAX_POLICY_BYTES
from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.tiles import (
    ENTRIES,
    TILE_WIDTH,
    Tile,
    decode_bundle,
    parse_tile_path,
    tile_at,
)
from stoilo.audit.log.seen import PAGE_ROWS, SeenStore
from stoilo.audit.log.side import ObjectKind, render_records
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import StoiloError, TrustError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from stoilo.audit.log.side import SideStore

    Answer = Callable[[Request], Response]


LOGGER = logging.getLogger(__name__)

# Cache header of what never changes under its name
FOREVER: Final = "public, max-age=31536000, immutable"

# Cache header of what may be another thing the next time; an ETag makes that cheap
REVALIDATE: Final = "no-cache"

_TEXTS = {"checkpoint": MAX_NOTE_BYTES, "policy.txt": MAX_POLICY_BYTES}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,12}")
_GONE = 410
_UNAVAILABLE = 503
_BYTES = "application/octet-stream"


def log_routes(log_directory: Path) -> list[Route]:
    """Return the routes that serve one log directory, for any reader."""
    files = TileDirectory(log_directory)

    def answer(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name in _TEXTS:
            text = files.read(name, _TEXTS[name])
            return render_file(request, text, "text/plain", REVALIDATE)
        # Only canonical names: one tile must not be cached under two of them.
        try:
            tile = parse_tile_path(name)
        except TrustError as error:
            raise _NoNameError from error
        return render_file(request, files.read_tile(tile), _BYTES, FOREVER)

    return [_route("/audit/log/{name:path}", answer)]


def side_routes(log_directory: Path, side: SideStore) -> list[Route]:
    """Return the routes that serve what lies beside a log, for any reader.

    All is hashed when it is read; what no longer has its digest is not sent.
    """
    files = TileDirectory(log_directory)

    def record(request: Request) -> Response:
        digest = _matching(request, "digest", _DIGEST)
        data = side.get(ObjectKind.RECORD, digest)
        return render_file(request, data, "application/json", FOREVER, digest)

    def source(request: Request) -> Response:
        digest = _matching(request, "digest", _DIGEST)
        data = side.get(ObjectKind.SOURCE, digest)
        if data is None and side.was_deleted(ObjectKind.SOURCE, digest):
            return render_missing(_GONE, "deleted; the log says when and why\n")
        # Not for ever: a retention command may delete it, and caches shall notice.
        return render_file(request, data, "text/plain", REVALIDATE, digest)

    def tile(request: Request) -> Response:
        entries = _entries(files, int(_matching(request, "number", _NUMBER)))
        if entries is None:
            return render_missing()
        records = [_readable(side, entry) for entry in entries]
        # A gap may be filled later, from a backup or by the log's writer.
        whole = len(entries) == TILE_WIDTH and not any(
            record is None and _has_record(entry)
            for entry, record in zip(entries, records, strict=True)
        )
        cache = FOREVER if whole else REVALIDATE
        return render_file(request, render_records(records), _BYTES, cache)

    return [
        _route("/audit/records/tile/{number}", tile),
        _route("/audit/records/{digest}", record),
        _route("/audit/source/{digest}", source),
    ]


def seen_routes(store: SeenStore) -> list[Route]:
    """Return the route that serves the checkpoints that executors saw."""

    def answer(request: Request) -> Response:
        page = store.page(int(_matching(request, "number", _NUMBER)))
        # Only the last page grows.
        full = page is not None and page.count(b"\n") == PAGE_ROWS
        cache = FOREVER if full else REVALIDATE
        return render_file(request, page, "application/jsonl", cache)

    return [_route("/audit/seen/{number}", answer)]


class _NoNameError(Exception):
    """The request names nothing that could be here."""


def _matching(request: Request, part: str, form: re.Pattern[str]) -> str:
    text = str(request.path_params[part])
    if not form.fullmatch(text):
        raise _NoNameError
    return text


def _route(path: str, answer: Answer) -> Route:
    """Return a route that answers with 503 for our own trouble: a mirror may have it."""

    def guarded(request: Request) -> Response:
        try:
            return answer(request)
        except _NoNameError:
            return render_missing()
        except StoiloError as error:
            LOGGER.error("%s is not served: %s", request.url.path, error)  # noqa: TRY400 - its text says all
            text = f"damaged or out of reach [{error.code}]\n"
            return render_missing(_UNAVAILABLE, text)

    return Route(path, guarded, methods=["GET"])


def render_file(
    request: Request, data: bytes | None, media: str, cache: str, etag: str = ""
) -> Response:
    """Return the answer with these bytes; 304 when the reader has them, 404 for None.

    Args:
        request: may name the version that its sender has.
        data: hostile as far as browsers are concerned: nothing in it is ever executed.
        media: type of the bytes.
        cache: `FOREVER` or `REVALIDATE`.
        etag: the bytes' digest where it is known.
    """
    if data is None:
        return render_missing()
    mark = f'"{etag or hashlib.sha256(data).hexdigest()}"'
    headers, is_known = file_headers(request, mark, cache)
    if is_known:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=media, headers=headers)


def file_headers(
    request: Request, mark: str, cache: str
) -> tuple[dict[str, str], bool]:
    """Return the headers of a file with the ETag `mark`, and whether the reader has it."""
    headers = {
        "cache-control": cache,
        "etag": mark,
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
    }
    known = request.headers.get("if-none-match", "")
    return headers, mark in {one.strip().removeprefix("W/") for one in known.split(",")}


def render_missing(status: int = 404, text: str = "not found\n") -> Response:
    """Return the answer for what is not there: it may be there the next time."""
    headers = {"cache-control": REVALIDATE, "x-content-type-options": "nosniff"}
    return PlainTextResponse(text, status, headers=headers)


def _entries(files: TileDirectory, number: int) -> list[bytes] | None:
    data = files.read_tile(Tile(ENTRIES, number))
    if data is not None:
        return decode_bundle(data, TILE_WIDTH)
    note = files.read("checkpoint", MAX_NOTE_BYTES)
    if note is None:
        return None
    size = parse_checkpoint(note.partition(b"\n\n")[0] + b"\n").size
    if not 0 <= number * TILE_WIDTH < size:
        return None
    tile = tile_at(ENTRIES, number, size)
    # the full tile replaces a partial one at any moment
    data = files.read_tile(tile) or files.read_tile(tile.full)
    return None if data is None else decode_bundle(data, tile.width)


def _readable(side: SideStore, entry: bytes) -> bytes | None:
    """Return the record of a leaf; one that is damaged here is a gap for the reader."""
    try:
        return side.records_of([entry])[0]
    except TrustError as error:
        LOGGER.error("a record is not served: %s", error)  # noqa: TRY400 - its text says all
        return None


def _has_record(entry: bytes) -> bool:
    """Whether a leaf names a record; admissions' statements are private."""
    try:
        return parse_leaf(entry).kind is not LeafKind.ADMISSION
    except TrustError:
        return False
