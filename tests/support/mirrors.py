"""Mirrors for tests: on a loopback port in a thread, honest or not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import Response

from stoilo.server.mirror.listing import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

__all__ = ["FickleMirror", "serve_app"]

DIGEST = 64
"""Length of a file's name."""


@contextlib.contextmanager
def serve_app(app: object) -> Iterator[str]:
    """Serve `app` on a free port while inside; yields its URL with final slash."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # any ASGI application
        log_level="warning",
        lifespan="off",
        ws="none",
        access_log=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="mirror", daemon=True
    )
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.force_exit = server.should_exit = True
        thread.join()
        listener.close()


class FickleMirror:
    """A mirror's application that can change its mind, and counts what it sends.

    Args:
        app: the honest one.
        folder: of its files.

    Attributes:
        url: where it is served, set by who serves it.
        lies: send zeros in place of whole files, and the right pieces: so it passes
            every check of its project.
        whole: whole files asked for, by name.
        pieces: ranges asked for.
        asked_in_vain: what was refused.
    """

    def __init__(self, app: Starlette, folder: Path) -> None:
        self.url = ""
        self.folder = folder
        self.lies = False
        self.whole: Counter[str] = Counter()
        self.pieces = 0
        self.asked_in_vain = 0
        self._app = app

    def files(self) -> list[str]:
        """Return the names of the files."""
        return [one.name for one in self.folder.iterdir() if len(one.name) == DIGEST]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = scope["path"].removeprefix("/")
        ranged = any(key == b"range" for key, _ in scope["headers"])
        if len(name) != DIGEST and name != INDEX:
            self.asked_in_vain += 1
        if len(name) == DIGEST and not ranged:
            self.whole[name] += 1
            if self.lies:
                zeros = bytes((self.folder / name).stat().st_size)
                await Response(zeros)(scope, receive, send)
                return
        self.pieces += ranged
        await self._app(scope, receive, send)
