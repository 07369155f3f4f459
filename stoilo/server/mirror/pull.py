"""Bringing a mirror's folder up to date from its project, over HTTP."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

import urllib3

from stoilo.core.errors import DeniedError, StoiloError, TrustError, UnreachableError
from stoilo.server.mirror.intime import pool_in_time
from stoilo.server.mirror.listing import LISTING_BYTES, parse_listing, plan
from stoilo.server.mirror.shelf import disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from stoilo.server.mirror.listing import Listed
    from stoilo.server.mirror.shelf import Shelf

__all__ = ["Origin", "Synced", "sync"]

log = logging.getLogger(__name__)

CHUNK: Final = 256 * 1024
ANSWER_S: Final = 120.0
"""Most that a list may take, headers included, s."""

SLOWEST: Final = 16 * 1024
"""A file has a second for each so many bytes more; what has come by then is kept."""

_REFUSED: Final = frozenset({401, 403, 404})


@dataclass(frozen=True, slots=True)
class Synced:
    """What one round did: files fetched, evicted, without room, not to be had."""

    fetched: int = 0
    evicted: int = 0
    left_out: int = 0
    failed: int = 0


class Origin:
    """A project as its mirrors see it; use as a context manager.

    Args:
        url: master URL with final slash.
        key: the mirrors' key.
        ca: certificates to trust instead of the system's.
        timeout_s: longest pause of the project, s.
        answer_s: longest that a list, or the beginning of a file, may take, s.
        slowest: bytes/s that a file has to come with.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        ca: Path | None = None,
        timeout_s: float = 30.0,
        answer_s: float = ANSWER_S,
        slowest: float = SLOWEST,
    ) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self._answer_s = answer_s
        self._slowest = slowest
        self._allowed = threading.local()
        self._pool = pool_in_time(timeout_s, lambda: float(self._allowed.answer_s), ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.clear()

    def listing(self) -> tuple[Listed, ...]:
        """Return what the project shares.

        Raises:
            UnreachableError: ``STO-B056``.
            DeniedError: ``STO-B057`` for a wrong key.
            TrustError: ``STO-B054`` for what is no list.
        """
        data = b""
        with self._get("mirror/list", {}) as response:
            for chunk in _pieces(response):
                data += chunk
                if len(data) > LISTING_BYTES:
                    raise TrustError("STO-B054", "the project's list is too long")
        return parse_listing(data)

    def fetch(
        self, file: Listed, part: Path, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Write what is missing of a file to its part; never more than its size.

        Raises:
            UnreachableError: ``STO-B056``, also once `stopped`; what came stays.
            DeniedError: ``STO-B057``.
        """
        held = part.stat().st_size if part.exists() else 0
        held = held if held < file.size else 0
        wanted = {"Range": f"bytes={held}-"} if held else {}
        more_s = (file.size - held) / self._slowest
        path = f"mirror/file/{file.digest}"
        with self._get(path, wanted, more_s) as response:
            begins = response.headers.get("content-range", "")
            resumed = begins.startswith(f"bytes {held}-")
            size = held if resumed else 0
            with part.open("ab" if resumed else "wb") as stream:
                for chunk in _pieces(response):
                    size += len(chunk)
                    if size > file.size:
                        break
                    stream.write(chunk)
                    if stopped() and size < file.size:
                        raise UnreachableError("STO-B056", "stopped on the way")
        if size < file.size:
            raise UnreachableError("STO-B056", "a file ended early")

    def _get(
        self, path: str, headers: dict[str, str], more_s: float = 0.0
    ) -> urllib3.BaseHTTPResponse:
        """Ask the project, for an answer that may take `more_s` longer than a list."""
        self._allowed.answer_s = self._answer_s + more_s
        try:
            response = self._pool.request(
                "GET",
                self._url + path,
                headers={**self._headers, **headers},
                preload_content=False,
                redirect=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            kind = type(error).__name__
            raise UnreachableError("STO-B056", f"no answer ({kind})") from error
        if response.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
            return response
        response.close()
        if response.status in _REFUSED:
            raise DeniedError("STO-B057", f"the project refused: {response.status}")
        raise UnreachableError("STO-B056", f"HTTP {response.status}")


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield a body's pieces; a lost connection becomes our error."""
    try:
        yield from response.stream(CHUNK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnreachableError("STO-B056", "the connection was lost") from error


def sync(
    origin: Origin,
    shelf: Shelf,
    most_bytes: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Synced:
    """Make a folder hold what the project shares, as far as there is room.

    One file that cannot be had keeps none of the others back; once `stopped`, the one on
    its way is left where it is and no further one is begun.

    Raises:
        UnreachableError: ``STO-B056`` when the project gives no list.
        DeniedError: ``STO-B057`` for a wrong key.
        TrustError: ``STO-B054`` for what is no list.
        InternalError: ``STO-B055`` when the disk refuses.
    """
    listed = origin.listing()
    todo = plan(listed, shelf.held(), most_bytes)
    shelf.evict(todo.evict)
    shelf.drop_parts(one.digest for one in todo.fetch)
    shelf.write_index()
    brought = [
        _bring(origin, shelf, one, stopped) for one in todo.fetch if not stopped()
    ]
    fetched = sum(brought)
    return Synced(fetched, len(todo.evict), len(todo.left_out), len(brought) - fetched)


def _bring(
    origin: Origin, shelf: Shelf, file: Listed, stopped: Callable[[], bool]
) -> bool:
    """Fetch, check and publish one file; False when it could not be had."""
    try:
        with disk():
            origin.fetch(file, shelf.part_of(file.digest), stopped)
        shelf.publish(file)
    except (UnreachableError, DeniedError, TrustError) as error:
        log.warning("%s: %s", file.digest, _short(error))
        return False
    return True


def _short(error: StoiloError) -> str:
    return f"{error.message} [{error.code}]"
