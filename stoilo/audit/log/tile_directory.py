"""A log directory on a disk, in the layout of tlog-tiles: static files for readers.

Every file is written under a temporary name, flushed, renamed, and its directory flushed.
Flushing is nearly all of the time that publishing takes, so files that do not depend on
each other are flushed side by side.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from stoilo.audit.format.tiles import (
    MAX_BUNDLE_BYTES,
    TILE_WIDTH,
    Tile,
    parse_tile_path,
    render_tile_path,
)
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import sync_directory, write_durably

_TEMPORARY = ".tmp"
_FLUSHERS = 4
_REMEMBERED = 64
Item = TypeVar("Item")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; nobody need write into a pipe for that."""
    return os.open(path, flags | os.O_NONBLOCK)


class TileDirectory:
    """Reads hostile files and writes immutable ones; one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._flushers: ThreadPoolExecutor | None = None
        self._made: set[Path] = set()  # folders whose names this process has flushed
        self._writing = threading.Lock()
        self._closed = False

    def read(self, name: str, limit: int) -> bytes | None:
        """Return at most limit+1 bytes of a file, None when it does not exist.

        Raises:
            OSError: it cannot be read, or is no plain file: a pipe never ends.
        """
        try:
            with open(self.path / name, "rb", opener=_open_at_once) as file:
                status = os.fstat(file.fileno())  # a limit is a large buffer
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "it is no plain file")
                return file.read(min(limit, status.st_size) + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_tile(self, tile: Tile) -> bytes | None:
        """Return a tile's bytes; one byte too many shows an oversized file."""
        return self.read(render_tile_path(tile), tile.max_bytes)

    def tiles(self) -> Iterator[Tile]:
        """Yield every file whose name is a tile's; strays are passed over."""
        for folder, _, names in os.walk(self.path / "tile"):
            below = os.path.relpath(folder, self.path)
            for name in names:
                try:
                    yield parse_tile_path(f"{below}/{name}")
                except TrustError:
                    continue

    def write_tiles(self, tiles: Sequence[tuple[Tile, bytes]]) -> None:
        """Write tiles durably; those that exist already must be equal.

        Raises:
            TrustError: ``STO-L044`` when a name is taken by other bytes.
            InternalError: ``STO-L051`` after `close`.
        """
        fresh = {
            self.path / render_tile_path(tile): data
            for tile, data in tiles
            if not self._is_written(tile, data)
        }
        with self._writing:
            self._check_open()
            for folder in dict.fromkeys(path.parent for path in fresh):
                self._make(folder)
            try:
                self._each(lambda item: _write_file(*item), fresh.items())
            except OSError:
                for path in fresh:
                    _temporary(path).unlink(missing_ok=True)
                raise
            for path in fresh:
                _temporary(path).rename(path)
            # Also for those found there: a crash may have come before their names' flush.
            paths = (self.path / render_tile_path(tile) for tile, _ in tiles)
            self._each(sync_directory, dict.fromkeys(path.parent for path in paths))

    def _is_written(self, tile: Tile, data: bytes) -> bool:
        name = render_tile_path(tile)
        present = self.read(name, MAX_BUNDLE_BYTES)
        if present is not None and present != data:
            raise TrustError("STO-L044", f"{name} exists with other contents")
        return present is not None

    def replace(self, name: str, data: bytes) -> None:
        """Put a file into the place of another, durably, so that readers see either.

        Raises:
            InternalError: ``STO-L051`` after `close`: another writer may be at work.
        """
        target = self.path / name
        with self._writing:
            self._check_open()
            self._make(target.parent)
            write_durably(target, data, draft=_temporary(target))

    def _check_open(self) -> None:
        if self._closed:
            raise InternalError("STO-L051", "the log was closed")

    def _make(self, folder: Path) -> None:
        """Make a folder and flush its name; also where a crash came between the two."""
        if folder in self._made and folder.is_dir():
            return
        if folder != self.path:
            self._make(folder.parent)
        folder.mkdir(parents=folder == self.path, exist_ok=True)
        sync_directory(folder.parent)
        if len(self._made) >= _REMEMBERED:
            self._made.clear()
        self._made.add(folder)

    def _each(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Do something to every item side by side; raise the first error."""
        todo = list(items)
        if len(todo) <= 1:
            for item in todo:
                work(item)
            return
        if self._flushers is None:
            self._flushers = ThreadPoolExecutor(_FLUSHERS, "log-flush")
        begun = [self._flushers.submit(work, item) for item in todo]
        wait(begun)  # all of them: a retry must not meet one that is still writing
        for done in begun:
            done.result()

    def drop_partials(self, tile: Tile) -> None:
        """Remove the partial forms of a tile whose full form exists."""
        if tile.width != TILE_WIDTH:
            return
        folder = self.path / f"{render_tile_path(tile)}.p"
        if not folder.is_dir():
            return
        for name in list(folder.iterdir()):
            name.unlink(missing_ok=True)
        folder.rmdir()

    def close(self) -> None:
        """Wait for what is being written, then write nothing more."""
        with self._writing:
            self._closed = True
            if self._flushers is not None:
                self._flushers.shutdown()
                self._flushers = None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}{_TEMPORARY}")


def _write_file(path: Path, data: bytes) -> None:
    """Write and flush a file's temporary form."""
    temporary = _temporary(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
