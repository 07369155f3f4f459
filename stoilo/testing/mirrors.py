"""An ASGI application on a loopback port, in a thread: a mirror for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["serve_app"]


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
