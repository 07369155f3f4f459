"""Mirrors for tests: HTTP caches on a loopback port in a thread, honest or not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

import urllib3
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

__all__ = ["CachingMirror", "serve_app"]


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


class CachingMirror:
    """What a caching proxy does, as the how-to sets one up; it can change its mind.

    Args:
        folder: of the files that it keeps.

    Attributes:
        url: where it is served, set by who serves it.
        project: master URL of the project, set when that is there.
        key: the mirrors' key.
        lies: send zeros in place of whole files, and the right pieces: so it passes
            every check of its project.
        whole: whole files asked for, by name.
        pieces: ranges asked for.
        asked_in_vain: what it could not get.
    """

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.project = ""
        self.key = ""
        self.folder = folder
        self.lies = False
        self.whole: Counter[str] = Counter()
        self.pieces = 0
        self.asked_in_vain = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = scope["path"].removeprefix("/")
        path = await run_in_threadpool(self._bring, name)
        ranged = "range" in Request(scope).headers
        answer: Response
        if path is None:
            self.asked_in_vain += 1
            answer = Response(status_code=404)
        elif self.lies and not ranged:
            answer = Response(bytes(path.stat().st_size))
        else:
            answer = FileResponse(path)
        if path is not None and not ranged:
            self.whole[name] += 1
        self.pieces += ranged
        await answer(scope, receive, send)

    def _bring(self, name: str) -> Path | None:
        """Return where a file lies, fetched if it is not here; None without one."""
        path = self.folder / name
        if "/" in name or not self.project:
            return None
        if not path.exists():
            got = urllib3.request(
                "GET",
                f"{self.project}mirror/file/{name}",
                headers={"Authorization": f"Bearer {self.key}"},
                retries=False,
            )
            if (
                got.status != HTTPStatus.OK
                or "public" not in got.headers["cache-control"]
            ):
                return None
            path.write_bytes(got.data)
        return path
