"""The public log over HTTP: ``/audit/log/`` as tlog-tiles names its files. Read-only.

Only a checkpoint, the log's own policy and canonical tile names are answered; tiles are
immutable and may be cached for long, the checkpoint for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoilo.audit.note import MAX_NOTE_BYTES
from stoilo.audit.policy import MAX_POLICY_BYTES
from stoilo.audit.tiledir import TileDirectory
from stoilo.audit.tiles import parse_tile_path
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

__all__ = ["log_routes"]

_TEXTS = {"checkpoint": MAX_NOTE_BYTES, "policy.txt": MAX_POLICY_BYTES}
_FOREVER = "public, max-age=31536000, immutable"


def log_routes(log_directory: Path) -> list[Route]:
    """Return the routes that serve one log directory, for any reader."""
    files = TileDirectory(log_directory)

    def answer(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name in _TEXTS:
            data, cache, media = (
                files.read(name, _TEXTS[name]),
                "no-cache",
                "text/plain",
            )
        else:
            try:
                tile = parse_tile_path(name)
            except TrustError:
                return PlainTextResponse("not found\n", 404)
            data, cache = files.read_tile(tile), _FOREVER
            media = "application/octet-stream"
        if data is None:
            return PlainTextResponse("not found\n", 404)
        return Response(data, media_type=media, headers={"cache-control": cache})

    return [Route("/audit/log/{name:path}", answer, methods=["GET"])]
