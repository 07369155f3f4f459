"""Which files of a data directory are part of a backup, and how they are held still.

Blobs, input files and uploads are named by the databases and never change, but are deleted
when nothing needs them. They are held by hard links made before the cut and completed
within it: what a row names at the cut existed then, so it is held. Everything else is
small, or immutable and never deleted, and is read after the cut.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.audit.format.tiles import is_within, parse_tile_path
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterator


DATABASES: Final = (
    "server.sqlite",
    "engine/engine.sqlite",
    "audit/log.sqlite",
    "audit/side.sqlite",
    "audit/seen.sqlite",
    "audit-head/head.sqlite",
)
"""SQLite files, as far as they are there."""

HELD: Final = ("blobs", "engine/files", "engine/uploads")
"""Folders of immutable files that may be deleted at any time."""

KEPT_AT_THE_CUT: Final = ("audit/log/checkpoint", "keys/state", "revocations")
"""Small files of the log's writer and its signer: of the cut's own moment."""

OFFLINE: Final = "keys/offline"

LATER: Final = ("keys", "tls", "engine", "volunteers", "stoilo.toml", "connection.json")
"""What is read after the cut; parts of it that are named above are left out."""

_LEFT_OUT: Final = frozenset({"lock", "publishing"})
_TEMPORARY: Final = (".tmp", ".new", ".part", "-wal", "-shm")
_TIMESTAMP: Final = "keys/metadata/timestamp.json"
_LARGEST_STATE: Final = 4 * 1024 * 1024


class FileFarm:
    """Hard links to the files of some folders, under `place` on the same disk.

    Args:
        data: the data directory.
        place: an own folder in it; removed by `close`.
    """

    def __init__(self, data: Path, place: Path) -> None:
        self._data = data
        self._place = place
        self.files: dict[str, Path] = {}

    def hold(self) -> None:
        """Link every file that is there and not yet held; quick the second time."""
        for folder in HELD:
            for path in _walk(self._data / folder):
                name = path.relative_to(self._data).as_posix()
                if name not in self.files:
                    self._link(path, name)

    def _link(self, path: Path, name: str) -> None:
        """Link one file; one that has gone meanwhile is named by no row any more."""
        target = self._place / str(len(self.files))
        try:
            os.link(path, target)
        except FileNotFoundError:
            return
        except OSError:  # a file system without links
            try:
                shutil.copyfile(path, target)
            except FileNotFoundError:
                return
        self.files[name] = target

    def close(self) -> None:
        """Let go."""
        shutil.rmtree(self._place, ignore_errors=True)


def later_files(data: Path, *, offline: bool) -> Iterator[tuple[str, Path]]:
    """Yield what is read after the cut; the release's timestamp first.

    A timestamp names a snapshot that is older than it: read in this order, what it names
    is there.
    """
    if (data / _TIMESTAMP).is_file():
        yield _TIMESTAMP, data / _TIMESTAMP
    skipped = [*HELD, *KEPT_AT_THE_CUT, *DATABASES, _TIMESTAMP]
    skipped += [] if offline else [OFFLINE]
    for part in LATER:
        place = data / part
        for path in _walk(place) if place.is_dir() else [place]:
            name = path.relative_to(data).as_posix()
            left_out = any(name == one or name.startswith(f"{one}/") for one in skipped)
            if left_out or not path.is_file():
                continue
            if part == "volunteers" and path.stat().st_size > _LARGEST_STATE:
                continue
            yield name, path


def small_files(data: Path) -> dict[str, bytes]:
    """Return the contents of what is kept at the cut."""
    found: dict[str, bytes] = {}
    for part in KEPT_AT_THE_CUT:
        place = data / part
        for path in _walk(place) if place.is_dir() else [place]:
            if path.is_file():
                found[path.relative_to(data).as_posix()] = path.read_bytes()
    return found


def log_files(data: Path, published: int) -> Iterator[tuple[str, Path]]:
    """Yield the log's static files that belong to `published` leaves."""
    log = data / "audit" / "log"
    for path in _walk(log):
        name = path.relative_to(log).as_posix()
        if name == "checkpoint":
            continue
        try:
            within = not name.startswith("tile/") or is_within(
                parse_tile_path(name), published
            )
        except TrustError:
            continue
        if within:
            yield f"audit/log/{name}", path


def _refuse(error: OSError) -> None:
    """Leave nothing out without a word; a folder that has gone was not needed."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the plain files below a folder that may be written to meanwhile."""
    for place, _, names in os.walk(folder, onerror=_refuse):
        for name in sorted(names):
            path = Path(place) / name
            skip = name in _LEFT_OUT or name.endswith(_TEMPORARY) or name[0] == "."
            if not skip and not path.is_symlink():
                yield path
