"""The public log over HTTP: ``/audit/log/`` as tlog-tiles names its files. Read-only.

Only a checkpoint, the log's own policy and canonical tile names are answered; tiles are
immutable and may be cached for long, the checkpoint is asked for anew each time.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import MAX_POLICY_BYTES
from stoilo.audit.format.tiles import parse_tile_path
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

__all__ = ["FOREVER", "REVALIDATE", "log_routes", "render_file", "render_missing"]

FOREVER: Final = "public, max-age=31536000, immutable"
"""Cache header of what never changes under its name."""

REVALIDATE: Final = "no-cache"
"""Cache header of what may be another thing the next time; an ETag makes that cheap."""

_TEXTS = {"checkpoint": MAX_NOTE_BYTES, "policy.txt": MAX_POLICY_BYTES}


def log_routes(log_directory: Path) -> list[Route]:
    """Return the routes that serve one log directory, for any reader."""
    files = TileDirectory(log_directory)

    def answer(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name in _TEXTS:
            text = files.read(name, _TEXTS[name])
            return render_file(request, text, "text/plain", REVALIDATE)
        try:
            tile = parse_tile_path(name)
        except TrustError:
            return render_missing()
        data = files.read_tile(tile)
        return render_file(request, data, "application/octet-stream", FOREVER)

    return [Route("/audit/log/{name:path}", answer, methods=["GET"])]


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
    headers = {
        "cache-control": cache,
        "etag": mark,
        "x-content-type-options": "nosniff",
    }
    known = request.headers.get("if-none-match", "")
    if mark in {one.strip().removeprefix("W/") for one in known.split(",")}:
        return Response(status_code=304, headers=headers)
    headers["content-security-policy"] = "default-src 'none'; sandbox"
    return Response(data, media_type=media, headers=headers)


def render_missing(status: int = 404, text: str = "not found\n") -> Response:
    """Return the answer for what is not there: it may be there the next time."""
    headers = {"cache-control": REVALIDATE, "x-content-type-options": "nosniff"}
    return PlainTextResponse(text, status, headers=headers)
