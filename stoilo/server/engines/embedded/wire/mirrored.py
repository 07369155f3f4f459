"""What mirrors may have of the project: shared files, by digest, for who has the key.

A mirror shows what it holds to everybody who knows a digest, so only files are given that
many copies share (flavors, models, data: `sticky`), never one task's arguments.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import exists, select
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stoilo.core.errors import DeniedError
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.accounts import SECRET_BYTES
from stoilo.server.mirror.listing import LISTED_MOST, Listed, render_listing

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from stoilo.server.engines.embedded.database import Database
    from stoilo.server.engines.embedded.wire.depot import Depot

__all__ = ["MirrorDesk", "mirror_routes"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class MirrorDesk:
    """The shared files that lie on disk.

    Args:
        database: knows which files are shared.
        depot: keeps the files.
        secret: file of the mirrors' key; without it nobody gets anything.
    """

    def __init__(self, database: Database, depot: Depot, secret: Path) -> None:
        self._database = database
        self._depot = depot
        self._secret = secret

    def is_key(self, said: str) -> bool:
        """Say whether an (untrusted) key is the mirrors'."""
        try:
            key = self._secret.read_bytes()
        except OSError:
            return False
        if len(key) != SECRET_BYTES:  # an empty file is nobody's key
            return False
        return hmac.compare_digest(key.hex().encode(), said.encode())

    def listed(self) -> tuple[Listed, ...]:
        """Return the shared files, those that are kept between tasks first."""
        table, needs = schema.files, schema.workunit_files
        kept = self._depot.retained
        shared = exists().where(needs.c.digest == table.c.digest, needs.c.sticky == 1)
        query = select(table.c.digest, table.c.size).where(
            table.c.content.is_(None), shared | table.c.digest.in_(kept)
        )
        with self._database.read() as connection:
            rows = connection.execute(query.limit(LISTED_MOST)).all()
        every = [Listed(row.digest, row.size) for row in rows]
        return tuple(sorted(every, key=lambda one: (one.digest not in kept, one.size)))

    def paths(self) -> dict[str, Path]:
        """Return where every shared file lies, by digest."""
        return {one.digest: self._depot.path_of(one.digest) for one in self.listed()}

    def path_of(self, digest: str) -> Path | None:
        """Return where a shared file lies, None for any other."""
        return self.paths().get(digest)


def mirror_routes(desk: MirrorDesk) -> list[Route]:
    """Return what mirrors ask of the project."""

    def check(request: Request) -> None:
        kind, _, said = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not desk.is_key(said[:200]):
            raise DeniedError("STO-E014", "there is no such file")

    async def listing(request: Request) -> Response:
        """Name the files that a mirror may have."""
        check(request)
        text = render_listing(await run_in_threadpool(desk.listed))
        return Response(text, media_type="text/plain")

    async def file(request: Request) -> Response:
        """Send one of them."""
        check(request)
        digest = request.path_params["digest"]
        known = _DIGEST.fullmatch(digest)
        path = await run_in_threadpool(desk.path_of, digest) if known else None
        if path is None:
            raise DeniedError("STO-E014", "there is no such file")
        return FileResponse(path, media_type="application/octet-stream")

    return [
        Route("/mirror/list", listing, methods=["GET"]),
        Route("/mirror/file/{digest}", file, methods=["GET"]),
    ]
