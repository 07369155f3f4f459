"""A project server that answers what it is told to: one prepared answer a request.

For what a real one hardly does on demand: cut a download in the middle, answer with another
part of a file, be in trouble, move.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Self

__all__ = ["Asked", "Scripted", "ScriptedProject"]

POLL_S = 0.02  # how soon the server notices that it shall end


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer.

    Attributes:
        body: sent as it is.
        status: HTTP's.
        headers: beside the length.
        cut_after: bytes of the body after which the connection is closed; None: whole.
        drip_s: pause after each byte of the body; 0: sent at once. Who goes away meanwhile
            is not waited for.
    """

    body: bytes = b""
    status: int = HTTPStatus.OK
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    drip_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    range: str
    body: bytes


class ScriptedProject:
    """The server; use as a context manager. The last answer of a path is repeated.

    Attributes:
        url: with final slash.
        asked: every request, in order.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: defaultdict[str, deque[Scripted]] = defaultdict(deque)
        project = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                body = self.rfile.read(length)
                wanted = self.headers.get("range", "")
                asked = Asked(self.command, self.path, wanted, body)
                self.send_scripted(project.take(asked))

            def send_scripted(self, answer: Scripted) -> None:
                self.send_response(answer.status)
                self.send_header("content-length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                sent = answer.body[: answer.cut_after]
                if answer.drip_s:
                    self.drip(sent, answer.drip_s)
                else:
                    self.wfile.write(sent)
                self.close_connection = answer.cut_after is not None

            def drip(self, body: bytes, pause_s: float) -> None:
                with suppress(ConnectionError):
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        time.sleep(pause_s)
                self.close_connection = True

            do_GET = do_POST = handle_one  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str, *answers: Scripted) -> None:
        """Prepare the answers to requests of a path."""
        self._answers[path] = deque(answers)

    def take(self, asked: Asked) -> Scripted:
        """Return the next answer; 404 where nothing was prepared."""
        self.asked.append(asked)
        waiting = self._answers[asked.path.partition("?")[0]]
        if not waiting:
            return Scripted(status=HTTPStatus.NOT_FOUND)
        return waiting.popleft() if len(waiting) > 1 else waiting[0]
