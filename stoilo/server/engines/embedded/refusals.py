"""What the project refused, in the operator's log: who called, for what, which code.

Read from our own answers, so that no handler can forget it. Callers decide how often they
are refused, so lines are bounded in number and in length; how many were left out is said
with the next one. Nothing that a caller sent is repeated but the kind of its path.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RefusalLog", "RefusalWatch", "find_refusals"]

log = logging.getLogger(__name__)

LINES: Final = 60
"""At once; afterwards one more each second."""

PATH_CHARS: Final = 20
PEEK_BYTES: Final = 4096
REFUSED: Final = 400
UNKNOWN_KEY: Final = "STO-E100"
ABUSE: Final = frozenset({"STO-E017", "STO-E065", "STO-E068"})
"""Codes in messages of a scheduler's reply; others tell an honest host something."""

_CODE: Final = re.compile(rb"\[(STO-[A-Z][0-9]{3})\]")
_PLAIN: Final = re.compile(r"/[a-z_.]*")
_BAD_KEY: Final = b"<stoilo_bad_key/>"
_REPLY: Final = b"<scheduler_reply>"


class RefusalLog:
    """Writes one line for a refusal, while it has lines left. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._left, self._since, self._dropped = float(LINES), clock(), 0

    def note(self, path: str, address: str, code: str) -> None:
        """Log that a request from an address was refused."""
        match = _PLAIN.match(path[:PATH_CHARS])
        kind = match[0] if match else ""
        dropped = self._take()
        if dropped is not None:
            more = f"; {dropped} more before" if dropped else ""
            log.warning("refused %s from %s [%s]%s", kind, address, code, more)

    def _take(self) -> int | None:
        """Return how many lines were left out before this one; None to leave it out."""
        with self._guard:
            now = self._clock()
            self._left = min(float(LINES), self._left + now - self._since)
            self._since = now
            if self._left < 1.0:
                self._dropped += 1
                return None
            self._left -= 1.0
            dropped, self._dropped = self._dropped, 0
            return dropped


def find_refusals(status: int, body: bytes) -> list[str]:
    """Return the codes by which an answer (its beginning) refuses; empty for others."""
    named = [code.decode() for code in _CODE.findall(body)]
    if _REPLY in body:
        unknown = [UNKNOWN_KEY] if _BAD_KEY in body else []
        return unknown + sorted(ABUSE.intersection(named))
    if status >= REFUSED or b"<error_num>" in body or b"<data_server_reply>" in body:
        return list(dict.fromkeys(named))
    return []


class RefusalWatch:
    """ASGI middleware: passes everything on, and logs what was refused."""

    def __init__(self, app: ASGIApp, log: RefusalLog | None = None) -> None:
        self._app = app
        self._log = log or RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = _text_status(message)
            elif status:
                self._look(scope, status, message.get("body", b""))
                status = 0  # what follows is the rest of it
            await send(message)

        await self._app(scope, receive, watch)

    def _look(self, scope: Scope, status: int, body: bytes) -> None:
        client = scope.get("client")
        for code in find_refusals(status, body[:PEEK_BYTES]):
            self._log.note(scope["path"], client[0] if client else "?", code)


def _text_status(start: Message) -> int:
    """Return the status of an answer in text, 0 of a file."""
    kinds = [value for name, value in start["headers"] if name == b"content-type"]
    return int(start["status"]) if kinds and kinds[0].startswith(b"text/") else 0
