"""HTTP to a server that is not trusted: bounded in bytes, and in time to the last header.

Proxies of the environment are not used. Redirections are answers, unless asked for; then
they lead to http and https only. urllib3 does the protocol and keeps connections; ours is
the deadline: a server that sends a byte now and then never lets a single read wait.
"""

# ruff: noqa: ANN401 - the library's own signatures

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

CHUNK = 256 * 1024
CONNECT_S = 10.0


class HttpError(OSError):
    """No whole answer came: no connection, too slow, too large, cut off."""


class AnswerTooLargeError(HttpError):
    """The answer's body has more bytes than were allowed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, hostile."""

    status: int  # HTTP's
    headers: Mapping[str, str]  # names in lower case
    body: bytes  # at most as many bytes as were allowed


class AnswerStream:
    """An answer whose body is still coming."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.lower(): text for name, text in response.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        """Yield the body's pieces; raises `HttpError`."""
        try:
            yield from self._response.stream(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise HttpError(f"the connection was lost ({_kind(error)})") from error


class HttpClient:
    """Kept connections to some servers; safe for several threads.

    Only for requests that may arrive twice: one that a closing connection swallowed is
    sent again.
    """

    def __init__(
        self,
        *,
        agent: str = "stoilo",  # what we call ourselves
        # certificates to trust instead of the system's, None for the system's
        ca: Path | None = None,
        read_s: float = 30.0,  # most that one read may wait, s
        redirects: int = 0,  # how many redirections are followed
    ) -> None:
        self._redirects = redirects
        self._agent = agent
        self._thread = threading.local()
        self._read_s = read_s
        self._pool = urllib3.PoolManager(
            num_pools=8,
            maxsize=8,
            timeout=urllib3.Timeout(connect=min(CONNECT_S, read_s), read=read_s),
            ca_certs=str(ca) if ca else None,
        )
        self._pool.pool_classes_by_scheme = _pools_with(self._in_time, self._connected)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.clear()

    def fetch(
        self,
        method: str,  # for example `GET`
        url: str,  # http or https
        *,
        most: int,  # bytes that its body may have
        within_s: float,  # most that all of it may take, s
        body: bytes | None = None,  # what is sent
        headers: Mapping[str, str] | None = None,  # beside ours
    ) -> Answer:
        """Return a whole answer.

        Raises:
            HttpError: no such answer came.
        """
        with self.open(
            method, url, within_s=within_s, body=body, headers=headers
        ) as stream:
            data = bytearray()
            for chunk in stream.chunks():
                data += chunk
                if len(data) > most:
                    raise AnswerTooLargeError(f"the answer has more than {most} bytes")
            return Answer(stream.status, stream.headers, bytes(data))

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        *,
        within_s: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[AnswerStream]:
        """Yield an answer once its headers are there; see `fetch`."""
        self._thread.deadline = time.monotonic() + within_s
        try:
            response = self._request(method, url, body, headers or {})
        # ValueError: the library's answer to some malformed addresses and headers.
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise HttpError(f"no answer ({_kind(error)})") from error
        with response:
            yield AnswerStream(response)

    def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> urllib3.BaseHTTPResponse:
        """Return an answer's beginning; its request may have been sent more than once."""
        while True:
            self._thread.connected = False
            try:
                return self._pool.request(
                    method,
                    url,
                    body=body,
                    headers={"User-Agent": self._agent, **headers},
                    preload_content=False,
                    decode_content=False,
                    redirect=self._redirects > 0,
                    retries=urllib3.Retry(
                        total=None,  # each kind by its own count
                        connect=0,
                        read=0,
                        status=0,
                        other=0,
                        redirect=self._redirects or False,
                    ),
                )
            except urllib3.exceptions.HTTPError as error:
                # A server may close a kept connection just as we write to it, and that
                # says nothing of the server; on a new connection it does (RFC 9112 §9.3.1).
                if self._thread.connected or not _was_closed(error):
                    raise

    def _connected(self) -> None:
        """Note that this thread's request opens a connection."""
        self._thread.connected = True

    def _in_time(
        self, sock: socket.socket, *args: Any, **more: Any
    ) -> http.client.HTTPResponse:
        """Return an answer that is read up to this thread's deadline."""
        made = http.client.HTTPResponse(sock, *args, **more)
        made.fp.close()
        deadline = self._thread.deadline
        made.fp = io.BufferedReader(_Timed(sock, self._read_s, deadline))
        return made


def _kind(error: Exception) -> str:
    """Return what failed, without addresses and paths."""
    reason = getattr(error, "reason", None)
    return type(reason if isinstance(reason, Exception) else error).__name__


def _was_closed(error: Exception) -> bool:
    """Whether the server closed the connection before a byte of its answer."""
    met = getattr(error, "reason", error)
    causes = met.args[1:] if isinstance(met, urllib3.exceptions.ProtocolError) else ()
    return any(isinstance(cause, ConnectionError) for cause in causes)


def _pools_with(answer: Any, connected: Callable[[], None]) -> dict[str, Any]:
    """Return pools by scheme whose connections read their answers by `answer`.

    `connected` is called when one opens.
    """

    class Plain(HTTPConnection):
        response_class = staticmethod(answer)  # type: ignore[assignment]  # a callable

        def connect(self) -> None:
            connected()
            super().connect()

    class Secure(HTTPSConnection):
        response_class = staticmethod(answer)  # type: ignore[assignment]  # a callable

        def connect(self) -> None:
            connected()
            super().connect()

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


class _Timed(io.RawIOBase):
    """The bytes of a socket until a deadline."""

    def __init__(self, sock: socket.socket, read_s: float, deadline: float) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._read_s = read_s
        self._deadline = deadline

    def readable(self) -> bool:
        """Whether bytes can be read: yes."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read some bytes, in what time is left."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer comes too slowly")
        self._socket.settimeout(min(left, self._read_s))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Give up the socket."""
        self._raw.close()
        super().close()
