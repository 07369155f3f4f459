"""Somebody between BOINC clients and a project: passes everything on, and changes it.

He plays a hostile or broken server in front of a sound one. The master page is rewritten so
that scheduler calls come to him; downloads and uploads do so too where their addresses are
rewritten (`through`). Not for anything but tests: plain HTTP, nothing is checked.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Meddler"]

_PASSED = ("Content-Type", "Range", "Content-Range", "Accept-Ranges", "ETag")
Edit = Callable[[bytes], bytes]


class Meddler:
    """A proxy of one project.

    Args:
        project: the real master URL.
        edit: gets every scheduler reply, returns what the client gets.
        files: what he serves himself, by path.
        through: also downloads and uploads go through him.
    """

    def __init__(
        self,
        project: str,
        edit: Edit = lambda reply: reply,
        *,
        files: dict[str, bytes] | None = None,
        through: bool = False,
    ) -> None:
        self._target = urlsplit(project).netloc
        self._edit = edit
        self._through = through
        self.files = files or {}
        self.requests: list[tuple[str, bytes]] = []
        # told path and body of every upload; it passes where this says so
        self.on_upload: Callable[[str, bytes], bool] = lambda _path, _body: True
        meddler = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                meddler.answer(self)

            def do_POST(self) -> None:
                meddler.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def project(self) -> str:
        """Return the master URL that clients attach to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request of a client."""
        size = int(handler.headers.get("Content-Length", "0"))
        body = handler.rfile.read(size)
        self.requests.append((handler.path, body))
        if handler.path in self.files:
            self._reply(handler, 200, {}, self.files[handler.path])
        elif handler.path.startswith("/upload/") and not self.on_upload(
            handler.path, body
        ):
            handler.close_connection = True
        else:
            self._pass_on(handler, body)

    def _pass_on(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {k: v for k, v in handler.headers.items() if k in _PASSED}
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(handler.command, handler.path, body or None, headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            handler.close_connection = True
            return
        finally:
            connection.close()
        passed = {k: v for k, v in response.getheaders() if k in _PASSED}
        self._reply(handler, response.status, passed, self._changed(handler.path, data))

    def _changed(self, path: str, data: bytes) -> bytes:
        if path == "/":
            return self._redirect(data)
        if path == "/sched":
            return self._edit(self._redirect(data) if self._through else data)
        return data

    def _redirect(self, data: bytes) -> bytes:
        """Return `data` with the project's own address as ours."""
        own = urlsplit(self.project).netloc
        return data.replace(self._target.encode(), own.encode())

    @staticmethod
    def _reply(
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        try:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:  # the client has gone
            handler.close_connection = True
