"""The way to one witness: HTTP over a kept connection, bounded in time and size."""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from stoilo.audit.witness.protocol import MAX_ANSWER_BYTES
from stoilo.core.errors import UnreachableError

__all__ = ["Answer", "HttpWire", "Wire"]

_PATH = "/add-checkpoint"
_CHUNK = 16 * 1024
_SHORTEST_S = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """A witness's answer, hostile: HTTP status and body."""

    status: int
    body: bytes


class Wire(Protocol):
    """Posts requests to one witness; used from one thread."""

    def post(self, body: bytes, deadline: float) -> Answer:
        """Return the answer; raises ``STO-L105``. `deadline` is of `time.monotonic`."""

    def close(self) -> None:
        """Give up the connection."""


class HttpWire:
    """HTTP or HTTPS (certificates by the system's authorities); redirects are answers.

    Args:
        url: the witness's submission prefix.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._is_tls = parts.scheme == "https"
        self._path = parts.path.rstrip("/") + _PATH
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, deadline: float) -> Answer:
        """Return the witness's answer; see `Wire`."""
        kept = self._connection is not None
        try:
            return self._post(body, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if not kept or time.monotonic() > deadline:
                raise _unreachable(error) from error
        try:  # a kept connection may have been closed meanwhile
            return self._post(body, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise _unreachable(error) from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes, deadline: float) -> Answer:
        connection = self._connection or self._connect(deadline)
        self._connection = connection
        _limit(connection, deadline)
        headers = {"content-type": "text/plain; charset=utf-8"}
        connection.request("POST", self._path, body, headers)
        response = connection.getresponse()
        data = bytearray()
        while chunk := response.read1(_CHUNK):
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                raise http.client.HTTPException("the answer is too long")
            _limit(connection, deadline)
        response.close()  # all of it was read: the connection can be used again
        return Answer(response.status, bytes(data))

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        left = max(deadline - time.monotonic(), _SHORTEST_S)
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=left)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=left, context=context
        )


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    """Let no further step take longer than what is left."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time is left")
    connection.timeout = left
    if connection.sock is not None:
        connection.sock.settimeout(left)


def _unreachable(error: Exception) -> UnreachableError:
    reason = str(error)[:200] or type(error).__name__
    return UnreachableError("STO-L105", f"it cannot be reached: {reason}")
