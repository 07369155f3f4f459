"""Records and published sources over HTTP, beside ``/audit/log/``. Read-only.

    /audit/records/<digest>    one record, JSON
    /audit/records/tile/<N>    the records of leaves 256 N and on, framed like their entries
    /audit/source/<digest>     a source whose submitter chose publication, as plain text

All is hashed when it is read; what no longer has its digest is not sent.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from starlette.routing import Route

from stoilo.audit.format.checkpoint import parse_checkpoint
from stoilo.audit.format.leaf import LeafKind, parse_leaf
from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.tiles import ENTRIES, TILE_WIDTH, Tile, decode_bundle, tile_at
from stoilo.audit.log.side import ObjectKind, render_records
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import StoiloError, TrustError
from stoilo.server.http.log_files import (
    FOREVER,
    REVALIDATE,
    render_file,
    render_missing,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from stoilo.audit.log.side import SideStore

    Answer = Callable[[Request], Response]

__all__ = ["side_routes"]

LOGGER = logging.getLogger(__name__)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_GONE = 410


def side_routes(log_directory: Path, side: SideStore) -> list[Route]:
    """Return the routes that serve what lies beside a log, for any reader."""
    files = TileDirectory(log_directory)

    def record(request: Request) -> Response:
        digest = str(request.path_params["digest"])
        if not _DIGEST.fullmatch(digest):
            return render_missing()
        data = side.get(ObjectKind.RECORD, digest)
        return render_file(request, data, "application/json", FOREVER, digest)

    def source(request: Request) -> Response:
        digest = str(request.path_params["digest"])
        if not _DIGEST.fullmatch(digest):
            return render_missing()
        data = side.get(ObjectKind.SOURCE, digest)
        if data is None and side.was_deleted(ObjectKind.SOURCE, digest):
            return render_missing(_GONE, "deleted; the log says when and why\n")
        return render_file(request, data, "text/plain", REVALIDATE, digest)

    def tile(request: Request) -> Response:
        number = str(request.path_params["number"])
        entries = None
        if _NUMBER.fullmatch(number):
            entries = _entries(files, int(number))
        if entries is None:
            return render_missing()
        records = [_readable(side, entry) for entry in entries]
        whole = len(entries) == TILE_WIDTH and not any(
            record is None and _has_record(entry)
            for entry, record in zip(entries, records, strict=True)
        )
        cache = FOREVER if whole else REVALIDATE
        data = render_records(records)
        return render_file(request, data, "application/octet-stream", cache)

    return [
        Route("/audit/records/tile/{number}", _guarded(tile), methods=["GET"]),
        Route("/audit/records/{digest}", _guarded(record), methods=["GET"]),
        Route("/audit/source/{digest}", _guarded(source), methods=["GET"]),
    ]


def _guarded(answer: Answer) -> Answer:
    """Return `answer` with our errors as 503: the reader may ask a mirror."""

    def guarded(request: Request) -> Response:
        try:
            return answer(request)
        except StoiloError as error:
            LOGGER.error("%s is not served: %s", request.url.path, error)  # noqa: TRY400 - its text says all
            return render_missing(503, f"damaged or out of reach [{error.code}]\n")

    return guarded


def _entries(files: TileDirectory, number: int) -> list[bytes] | None:
    """Return the published leaves of a tile, None when there are none."""
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
