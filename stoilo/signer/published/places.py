"""Where a published release lies: a directory, a server's data directory, or a URL.

Trust: everything is hostile; every reading is bounded by the caller.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import IO, Final

from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.http_client import HttpClient, HttpError

MAX_FILES: Final = 8192
MAX_DEPTH: Final = 8
_TIMEOUT_S: Final = 30.0
_REDIRECTS: Final = 5
_ANSWER_S: Final = 1800.0
_GONE: Final = frozenset({404, 410})
_PRIVATE: Final = frozenset({"online", "offline", "state", "retired"})
_HALF = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]*\.new")


class Place(ABC):
    """A release's files by name, ``metadata/1.root.json`` for example."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file's bytes, None when it is not there; raises as `open`."""
        file = self.open(name, limit)
        if file is None:
            return None
        with file:
            return file.read(limit)

    @abstractmethod
    def open(self, name: str, size: int) -> IO[bytes] | None:
        """Return a file of at most `size` bytes to read twice, None when it is not there.

        Raises ``STO-K013`` when it is larger, or no plain file; ``STO-L002``.
        """

    @abstractmethod
    def names(self) -> frozenset[str] | None:
        """Return the names of all files, None where they cannot be listed."""


class DirectoryPlace(Place):
    """A release directory, or the one inside a server's data directory."""

    def __init__(self, path: Path) -> None:
        keys = path / "keys"
        is_data = not (path / "metadata").exists() and (keys / "metadata").exists()
        self._root = keys if is_data else path
        self._live = is_data or _is_servers_own(self._root)

    def open(self, name: str, size: int) -> IO[bytes] | None:
        """Return a file of at most `size` bytes, None when it is not there."""
        try:
            descriptor = os.open(
                self._root / name,
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _strange(name, os.strerror(error.errno or 0)) from error
        file = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > size:
            file.close()
            raise _strange(name, f"it is no plain file of at most {size} bytes")
        return file

    def names(self) -> frozenset[str] | None:
        """Return the names of all files; refuses links and special files.

        A server's own private directories beside the release are left out, and files
        that it is just writing.
        """
        found: set[str] = set()
        for name in self._walk(""):
            found.add(name)
            if len(found) > MAX_FILES:
                raise _strange(name, f"a release has at most {MAX_FILES} files")
        return frozenset(found)

    def _walk(self, below: str) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(self._root / below), key=lambda one: one.name)
        except OSError as error:
            raise _strange(below or ".", os.strerror(error.errno or 0)) from error
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                if name.count("/") >= MAX_DEPTH:
                    raise _strange(name, "its folders are too deep")
                # In a copy for others such a folder is a mistake, and is said.
                if not (self._live and name in _PRIVATE):
                    yield from self._walk(name)
            elif not entry.is_file(follow_symlinks=False):
                raise _strange(name, "it is a link or a special file")
            elif not (self._live and _HALF.fullmatch(entry.name)):
                yield name


def _is_servers_own(root: Path) -> bool:
    """Whether a server's private directories lie beside the release, closed to others."""
    for name in ("online", "state"):
        try:
            status = (root / name).lstat()
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            return False
    return True


class WebPlace(Place):
    """A release below an ``http(s)`` URL, fetched file by file."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._client = HttpClient(read_s=_TIMEOUT_S, redirects=_REDIRECTS)

    def open(self, name: str, size: int) -> IO[bytes] | None:
        """Fetch a file of at most `size` bytes into a temporary one."""
        url = f"{self._url}/{name}"
        try:
            with self._client.open("GET", url, within_s=_ANSWER_S) as answer:
                if answer.status in _GONE:
                    return None
                if answer.status != HTTPStatus.OK:
                    raise UnreachableError(
                        "STO-L002", f"{url} answered {answer.status}"
                    )
                return _kept(_bounded(answer.chunks(), name, size))
        except HttpError as error:
            raise UnreachableError(
                "STO-L002", f"{url} cannot be reached: {error}"
            ) from error

    def names(self) -> frozenset[str] | None:
        """Return None: a web server lists nothing that could be believed."""
        return None


def _kept(pieces: Iterator[bytes]) -> IO[bytes]:
    """Return a temporary file: what is checked is read twice, and must not change."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        file.writelines(pieces)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _bounded(pieces: Iterator[bytes], name: str, size: int) -> Iterator[bytes]:
    left = size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise _strange(name, f"it is larger than {size} bytes")
        yield piece


def open_place(location: str) -> Place:
    """Return the place that a person named; raises ``STO-K052`` for what is none."""
    if location.lower().startswith(("http://", "https://")):
        return WebPlace(location)
    path = Path(location)
    if not path.is_dir():
        raise UsageError(
            "STO-K052",
            f"{location[:200]} is neither a directory nor an http(s) URL",
            hint="name a release directory, a server's data directory or its /release URL",
        )
    return DirectoryPlace(path)


def _strange(name: str, reason: str) -> TrustError:
    """Return the refusal of a file that is not as a release's files are."""
    return TrustError("STO-K013", f"{name[:120]!r} in the release: {reason}")
