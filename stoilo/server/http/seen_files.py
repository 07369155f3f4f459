"""Seen checkpoints over HTTP: ``/audit/seen/<N>``, 256 rows a page. Read-only.

A full page never changes and may be cached for long; the last one grows.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stoilo.audit.log.seen import PAGE_ROWS, SeenStore
from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from starlette.requests import Request

__all__ = ["seen_routes"]

LOGGER = logging.getLogger(__name__)
_FOREVER = "public, max-age=31536000, immutable"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,12}")


def seen_routes(data_dir: Path, stack: AsyncExitStack) -> list[Route]:
    """Return the route that serves the rows of a data directory, for any reader.

    `stack` closes the store at the end.
    """
    store = SeenStore.below(data_dir)
    stack.callback(store.close)

    def answer(request: Request) -> Response:
        number = str(request.path_params["number"])
        try:
            page = store.page(int(number)) if _NUMBER.fullmatch(number) else None
        except StoiloError as error:
            LOGGER.error("seen checkpoints cannot be shown: %s", error)  # noqa: TRY400 - its text says all
            return PlainTextResponse("cannot be read\n", 503)
        if page is None:
            return PlainTextResponse(
                "not found\n", 404, headers={"cache-control": "no-cache"}
            )
        full = page.count(b"\n") == PAGE_ROWS
        return Response(
            page,
            media_type="application/jsonl",
            headers={
                "cache-control": _FOREVER if full else "no-cache",
                "x-content-type-options": "nosniff",
            },
        )

    return [Route("/audit/seen/{number}", answer, methods=["GET"])]
