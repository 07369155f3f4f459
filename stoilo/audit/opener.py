"""Open a URL of a hostile server: http and https alone, and in time to the last header."""

# ruff: noqa: ANN401 - these signatures are the library's

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["answers_in_time", "open_url"]


def open_url(
    url: str, timeout_s: float, answer_s: float, ca: Path | None = None
) -> http.client.HTTPResponse:
    """Return the answer of an ``http(s)`` URL, read up to the end of its headers.

    Args:
        url: the caller checked its scheme.
        timeout_s: most that one read may wait, s.
        answer_s: most that an answer may take, headers and body together, s.
        ca: certificates to trust instead of the system's, None for the system's.

    Raises:
        OSError, http.client.HTTPException, ValueError: as `urllib.request` does; also
            for a redirection to another scheme.
    """
    in_time = _InTime(timeout_s, answer_s)
    https = _Https(in_time, ssl.create_default_context(cafile=ca) if ca else None)
    opener = urllib.request.build_opener(_Redirects(), _Http(in_time), https)
    answer: http.client.HTTPResponse = opener.open(url, timeout=timeout_s)
    return answer


def answers_in_time(timeout_s: float, answer_s: Callable[[], float]) -> Any:
    """Return what takes the place of `http.client.HTTPResponse` in a connection.

    Args:
        timeout_s: most that one read may wait, s.
        answer_s: asked when an answer begins: most that all of it may take, s. A
            server that sends a byte now and then never lets a single read wait.
    """

    def answer(
        sock: socket.socket, *args: Any, **more: Any
    ) -> http.client.HTTPResponse:
        made = http.client.HTTPResponse(sock, *args, **more)
        made.fp.close()
        deadline = time.monotonic() + answer_s()
        made.fp = io.BufferedReader(_Timed(sock, timeout_s, deadline))
        return made

    return answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection to http and https only; the library would follow ftp too."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request to follow, or raise."""
        if not newurl.lower().startswith(("http://", "https://")):
            fp.close()
            raise urllib.error.URLError("it redirects to another kind of address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _InTime:
    """Makes connections whose answers have a deadline."""

    def __init__(self, timeout_s: float, answer_s: float) -> None:
        self._timeout_s = timeout_s
        self._answer_s = answer_s

    def wrap(
        self, connect: Callable[..., http.client.HTTPConnection]
    ) -> Callable[..., http.client.HTTPConnection]:
        """Return what makes a connection as `connect` does, with a deadline."""
        answer = answers_in_time(self._timeout_s, lambda: self._answer_s)

        def make(*args: Any, **more: Any) -> http.client.HTTPConnection:
            made = connect(*args, **more)
            made.response_class = answer
            return made

        return make


class _Http(urllib.request.HTTPHandler):
    """http with a deadline."""

    def __init__(self, in_time: _InTime) -> None:
        super().__init__()
        self._in_time = in_time

    def do_open(self, http_class: Any, req: Any, **more: Any) -> Any:
        """Open `req` as the library does."""
        return super().do_open(self._in_time.wrap(http_class), req, **more)


class _Https(urllib.request.HTTPSHandler):
    """https with a deadline; certificates by the system's authorities or `context`."""

    def __init__(self, in_time: _InTime, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._in_time = in_time

    def do_open(self, http_class: Any, req: Any, **more: Any) -> Any:
        """Open `req` as the library does."""
        return super().do_open(self._in_time.wrap(http_class), req, **more)


class _Timed(io.RawIOBase):
    """The bytes of a socket until a deadline."""

    def __init__(self, sock: socket.socket, timeout_s: float, deadline: float) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._timeout_s = timeout_s
        self._deadline = deadline

    def readable(self) -> bool:
        """Whether bytes can be read: yes."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read some bytes, in what time is left."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer comes too slowly")
        self._socket.settimeout(min(left, self._timeout_s))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Give up the socket."""
        self._raw.close()
        super().close()
