"""The mirror as a web server of its own: its folder over HTTP, kept up to date meanwhile.

Nothing else is served than the index and whole files, to GET and HEAD, with ranges. A
mirror knows no accounts and no tasks; what it logs is up to its keeper.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stoilo.core.errors import StoiloError
from stoilo.server.mirror.listing import INDEX
from stoilo.server.mirror.pull import sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from stoilo.server.mirror.pull import Origin, Synced
    from stoilo.server.mirror.shelf import Shelf

__all__ = ["Keeper", "create_mirror_app"]

log = logging.getLogger(__name__)

_FILE: Final = re.compile(rf"[0-9a-f]{{64}}|{re.escape(INDEX)}")
STOP_S: Final = 2.0
_FOR_EVER: Final = {"cache-control": "public, max-age=31536000, immutable"}


def create_mirror_app(folder: Path) -> Starlette:
    """Return the ASGI application that serves a mirror's folder."""

    async def file(request: Request) -> Response:
        """Send one file, or the part of it that is asked for."""
        name = request.path_params["name"]
        path = folder / name
        if not _FILE.fullmatch(name) or not path.is_file():
            return Response("there is no such file\n", status_code=404)
        headers = {} if name == INDEX else _FOR_EVER
        return FileResponse(
            path, media_type="application/octet-stream", headers=headers
        )

    return Starlette(routes=[Route("/{name}", file, methods=["GET"])])


class Keeper:
    """Keeps a folder up to date in a thread, until stopped.

    Args:
        origin: the project.
        shelf: the folder.
        most_bytes: largest sum of the files.
        every_s: pause between two rounds, s.
        tell: told what a round did.
        stop_s: longest wait for a piece on its way at the end, s.
    """

    def __init__(
        self,
        origin: Origin,
        shelf: Shelf,
        most_bytes: int,
        every_s: float,
        tell: Callable[[Synced], None],
        *,
        stop_s: float = STOP_S,
    ) -> None:
        self._origin = origin
        self._shelf = shelf
        self._most_bytes = most_bytes
        self._every_s = every_s
        self._tell = tell
        self._stop_s = stop_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the piece in progress, or without it; the next run goes on there."""
        self._stop.set()
        self._thread.join(self._stop_s)

    def _run(self) -> None:
        """Go round by round; a round that fails costs nothing but itself."""
        while not self._stop.is_set():
            try:
                self._tell(
                    sync(self._origin, self._shelf, self._most_bytes, self._stop.is_set)
                )
            except StoiloError as error:
                log.warning("not up to date: %s", error)
            self._stop.wait(self._every_s)
