"""Where a reader gets a log from: a directory or a web server. Everything is hostile."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stoilo.audit.note import MAX_NOTE_BYTES
from stoilo.audit.policy import MAX_POLICY_BYTES
from stoilo.audit.store import LogPaths, locate_log
from stoilo.audit.tiledir import TileDirectory
from stoilo.audit.tiles import Tile, render_tile_path
from stoilo.core.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DirectorySource", "HttpSource", "LogSource", "open_source"]

_TIMEOUT_S = 15.0
_GONE = frozenset({404, 410})
_BELOW_SERVER = "audit/log/"


class LogSource(Protocol):
    """One log as its readers see it. Methods raise ``STO-L002`` when it is out of reach."""

    paths: LogPaths | None

    def checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy, None when there is none."""

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile, None when it does not exist."""

    def stored(self) -> Iterator[Tile]:
        """Yield the tiles that are known to exist, if they can be listed."""


class DirectorySource:
    """A log directory, or the one inside a data directory (then `paths` is set)."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise UsageError("STO-L001", f"{path} is not a directory")
        log, self.paths = locate_log(path)
        self._files = TileDirectory(log)

    def checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""
        return self._read("checkpoint", MAX_NOTE_BYTES)

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy, None when there is none."""
        return self._read("policy.txt", MAX_POLICY_BYTES)

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile, None when it does not exist."""
        return self._read(render_tile_path(tile), tile.max_bytes)

    def stored(self) -> Iterator[Tile]:
        """Yield the tiles on the disk."""
        return self._files.tiles()

    def _read(self, name: str, limit: int) -> bytes | None:
        try:
            return self._files.read(name, limit)
        except OSError as error:
            raise UnreachableError(
                "STO-L002", f"{name} cannot be read: {error.strerror}"
            ) from error


class HttpSource:
    """A log below an ``http(s)://`` prefix, or below ``audit/log/`` of that prefix."""

    paths: LogPaths | None = None

    def __init__(self, url: str) -> None:
        self._prefix = url.rstrip("/") + "/"
        if self.checkpoint() is None:
            self._prefix += _BELOW_SERVER

    def checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""
        return self._read("checkpoint", MAX_NOTE_BYTES)

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy, None when there is none."""
        return self._read("policy.txt", MAX_POLICY_BYTES)

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile, None when it does not exist."""
        return self._read(render_tile_path(tile), tile.max_bytes)

    def stored(self) -> Iterator[Tile]:
        """Yield nothing: a web server does not list."""
        return iter(())

    def _read(self, name: str, limit: int) -> bytes | None:
        url = self._prefix + name
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - open_source checked the scheme
                data = answer.read(limit + 1)
                assert isinstance(data, bytes)  # noqa: S101 - what read() returns
                return data
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _GONE:
                    return None
            raise UnreachableError(
                "STO-L002", f"{url} answered {error.code}"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(
                "STO-L002", f"{url} cannot be reached: {error}"
            ) from error


def open_source(location: str | Path) -> LogSource:
    """Return the source that a user named: a path or an ``http(s)`` URL.

    Raises:
        UsageError: ``STO-L001`` when it cannot be a log.
        UnreachableError: ``STO-L002``.
    """
    text = str(location)
    if text.startswith(("http://", "https://")):
        return HttpSource(text)
    if "://" in text:
        raise UsageError("STO-L001", f"not a directory or http(s) URL: {text[:80]!r}")
    return DirectorySource(Path(location))
