"""Open a URL of a hostile server: http and https alone, and in time to the last header."""

# ruff: noqa: ANN401 - these signatures are the library's

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

__all__ = ["open_url"]


def open_url(url: str, timeout_s: float, answer_s: float) -> http.client.HTTPResponse:
    """Return the answer of an ``http(s)`` URL, read up to the end of its headers.

    Args:
        url: the caller checked its scheme.
        timeout_s: most that one read may wait, s.
        answer_s: most that an answer may take, headers and body together, s.

    Raises:
        OSError, http.client.HTTPException, ValueError: as `urllib.request` does; also
            for a redirection to another scheme.
    """
    in_time = _InTime(timeout_s, answer_s)
    opener = urllib.request.build_opener(_Redirects(), _Http(in_time), _Https(in_time))
    answer: http.client.HTTPResponse = opener.open(url, timeout=timeout_s)
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

        def answer(sock: socket.socket, *args: Any, **more: Any) -> Any:
            made = http.client.HTTPResponse(sock, *args, **more)
            made.fp.close()
            deadline = time.monotonic() + self._answer_s
            made.fp = io.BufferedReader(_Timed(sock, self._timeout_s, deadline))
            return made

        def make(*args: Any, **more: Any) -> http.client.HTTPConnection:
            made = connect(*args, **more)
            made.response_class = answer  # type: ignore[assignment]  # a callable will do
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
    """https, certificates by the system's authorities, with a deadline."""

    def __init__(self, in_time: _InTime) -> None:
        super().__init__()
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
