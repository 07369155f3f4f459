"""One moment of all databases: what a crash at that moment would have left, no worse.

The server is made to survive a crash between any two of its steps, so a cut through all
databases at one moment is enough for everything to fit: tasks to workunits, both to the
log, the log to its head. All write locks are taken together, readers with a snapshot of
their own are opened, the locks are given back; copying happens from the snapshots while
the server goes on. Locks are only tried: where one is taken all are let go, so that
nobody who holds one and wants another can wait for us in a circle.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

from stoilo.audit.format.tiles import is_within, parse_tile_path
from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.server.db.mariadb import open_mariadb, write_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection


PATIENCE_S: Final = 60.0
"""How long the locks are tried for, s."""

_TRY_S: Final = 0.05
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


@dataclass(frozen=True, slots=True)
class Cut:
    """Snapshots of one moment."""

    # SQLite databases by path, each in a read transaction
    files: Mapping[Path, sqlite3.Connection]
    # MariaDB databases by branch, each in a read transaction
    tables: Mapping[str, Connection]
    taken_at: int  # the moment, s since 1970


@contextlib.contextmanager
def open_cut(
    files: Sequence[Path],  # SQLite databases
    # MariaDB databases by the branch whose writers take turns there
    urls: Mapping[str, str],
    meanwhile: Callable[[], None],  # reads what belongs to the same moment
    patience_s: float = PATIENCE_S,  # how long to try, s
) -> Iterator[Cut]:
    """Yield a cut; `meanwhile` runs while nobody can write, and must be quick.

    Raises:
        InternalError: ``STO-B069`` the server wrote all the time.
    """
    end = time.monotonic() + patience_s
    with contextlib.ExitStack() as snapshots:
        while True:
            try:
                with contextlib.ExitStack() as locks:
                    _lock(locks, files, urls)
                    cut = _snapshot(snapshots, files, urls)
                    meanwhile()
                break
            except (sqlite3.OperationalError, StoiloError, SQLAlchemyError) as error:
                snapshots.close()
                if not _is_taken(error) or time.monotonic() > end:
                    raise _no_cut(error) from error
                time.sleep(random.uniform(0.01, 0.1))  # noqa: S311 - out of step
        yield cut


def _lock(
    stack: contextlib.ExitStack, files: Sequence[Path], urls: Mapping[str, str]
) -> None:
    for path in files:
        connection = stack.enter_context(contextlib.closing(_open(path)))
        connection.execute("BEGIN IMMEDIATE")
    for branch, url in urls.items():
        engine = open_mariadb(url)
        stack.callback(engine.dispose)
        stack.enter_context(write_turn(engine, branch, wait_s=1))


def _snapshot(
    stack: contextlib.ExitStack, files: Sequence[Path], urls: Mapping[str, str]
) -> Cut:
    readers: dict[Path, sqlite3.Connection] = {}
    for path in files:
        readers[path] = stack.enter_context(contextlib.closing(_open(path)))
        readers[path].execute("BEGIN")
        readers[path].execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    tables: dict[str, Connection] = {}
    for branch, url in urls.items():
        engine = open_mariadb(url)
        stack.callback(engine.dispose)
        tables[branch] = stack.enter_context(engine.connect())
        tables[branch].exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return Cut(readers, tables, int(time.time()))


def _open(path: Path) -> sqlite3.Connection:
    """Open a database that exists; its journal stays as it is."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_TRY_S,
        isolation_level=None,
    )


def _is_taken(error: Exception) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
    return isinstance(error, StoiloError) and error.code == "STO-R112"


def _no_cut(error: Exception) -> StoiloError:
    if isinstance(error, StoiloError) and error.code != "STO-R112":
        return error
    return InternalError(
        "STO-B069",
        f"no moment at which all databases rest ({type(error).__name__})",
        hint="try again; a migration or another backup may hold one of them",
    )


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
    """Hard links to the files of some folders, under `place` on the same disk."""

    def __init__(
        self,
        data: Path,  # the data directory
        place: Path,  # an own folder in it; removed by `close`
    ) -> None:
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
