"""`stoilo backup`: a running server's data at one moment, with a digest for every file."""

from __future__ import annotations

import fcntl
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

from stoilo.audit.format.merkle import parse_checkpoint
from stoilo.audit.format.note import parse_note
from stoilo.core.errors import InternalError, UsageError
from stoilo.server.backup.cut import (
    DATABASES,
    OFFLINE,
    FileFarm,
    later_files,
    log_files,
    open_cut,
    small_files,
)
from stoilo.server.backup.manifest import (
    FORMAT,
    MANIFEST_FILE,
    BackupFile,
    BackupWriter,
    LogPlace,
    Manifest,
    render_manifest,
)
from stoilo.server.backup.tables import BRANCHES, FILES, copy_tables
from stoilo.server.db.mariadb import is_mariadb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from stoilo.server.config import ServerConfig


_WORK: Final = "backup"
_CHECKPOINT: Final = "audit/log/checkpoint"


@dataclass
class _Draft:
    """A backup being written."""

    sink: BackupWriter
    work: Path
    files: list[BackupFile] = field(default_factory=list)

    def add_path(self, name: str, path: Path) -> None:
        """Add a file as it is; one that has gone meanwhile was not needed."""
        try:
            with path.open("rb") as source:
                self.files.append(
                    BackupFile(name, *self.sink.add(f"files/{name}", source))
                )
        except FileNotFoundError:
            return

    def add_data(self, name: str, data: bytes) -> None:
        """Add bytes as a file."""
        written = self.sink.add(f"files/{name}", data)
        self.files.append(BackupFile(name, *written))


def take_backup(
    config: ServerConfig,  # the server's settings
    output: Path,  # a directory to make
    *,
    offline_keys: bool = False,  # take ``keys/offline`` along
) -> Manifest:
    """Write a backup of the server in ``config.data``; the server may run meanwhile.

    Raises:
        UsageError: ``STO-U004`` not a data directory, ``STO-B063`` `output` exists.
        InternalError: ``STO-B069`` no moment could be had; ``STO-U006`` the disk refuses.
    """
    data = config.data
    if not (data / "audit" / "log.sqlite").is_file():
        raise UsageError(
            "STO-U004",
            f"{data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    sink = BackupWriter(output.absolute())
    try:
        with _own_place(data) as place:
            manifest = _take(
                config,
                _Draft(sink, place),
                FileFarm(data, place),
                offline_keys=offline_keys,
            )
        sink.finish()
    except (OSError, sqlite3.Error, SQLAlchemyError) as error:
        raise InternalError(
            "STO-U006", f"the backup cannot be written: {error}"
        ) from error
    finally:
        sink.discard()
    return manifest


def _take(
    config: ServerConfig, draft: _Draft, farm: FileFarm, *, offline_keys: bool
) -> Manifest:
    data = config.data
    urls = _mariadb_urls(config)
    elsewhere = {FILES[branch] for branch in urls}  # a file there is a former one
    found = [data / name for name in DATABASES if name not in elsewhere]
    databases = [path for path in found if path.is_file()]
    small: dict[str, bytes] = {}

    def meanwhile() -> None:
        """Complete what must be of the cut's own moment."""
        farm.hold()
        small.update(small_files(data))

    farm.hold()
    with open_cut(databases, urls, meanwhile) as cut:
        place = _log_place(cut.files, data, small)
        for name, content in sorted(small.items()):
            draft.add_data(name, content)
        for path, connection in cut.files.items():
            _add_database(draft, path.relative_to(data).as_posix(), connection)
        for branch, reading in cut.tables.items():
            _add_tables(draft, branch, reading)
        for name, path in (
            *farm.files.items(),
            *log_files(data, place.published),
            *later_files(data, offline=offline_keys),
        ):
            draft.add_path(name, path)
        taken_at = cut.taken_at
    manifest = Manifest(
        format=FORMAT,
        version=version("stoilo"),
        taken_at=taken_at,
        offline_keys=offline_keys and (data / OFFLINE).is_dir(),
        development=(data / OFFLINE).is_dir(),
        mariadb=bool(urls),
        log=place,
        files=tuple(draft.files),
    )
    draft.sink.add(MANIFEST_FILE, render_manifest(manifest))
    return manifest


@contextmanager
def _own_place(data: Path) -> Iterator[Path]:
    """Yield a folder for links; one backup at a time, left-overs of a crash removed."""
    place = data / _WORK
    place.mkdir(mode=0o700, exist_ok=True)
    with (place / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InternalError(
                "STO-B069", "another backup of this server runs", hint="wait for it"
            ) from error
        for left in place.glob("links-*"):
            FileFarm(data, left).close()
        links = Path(tempfile.mkdtemp(prefix="links-", dir=place))
        try:
            yield links
        finally:
            FileFarm(data, links).close()


def _mariadb_urls(config: ServerConfig) -> dict[str, str]:
    """Return where rows are to be read; a stock project's tables are BOINC's to back up."""
    urls = {"server": config.database_url}
    if config.engine == "embedded":
        urls["engine"] = config.engine_database_url
    return {name: url for name, url in urls.items() if is_mariadb(url)}


def _add_database(draft: _Draft, name: str, source: sqlite3.Connection) -> None:
    """Copy a database from its snapshot by SQLite's own means."""
    with tempfile.TemporaryDirectory(prefix="copy-", dir=draft.work) as folder:
        copy = Path(folder) / "copy.sqlite"
        with closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        draft.add_path(name, copy)


def _add_tables(draft: _Draft, name: str, source: Connection) -> None:
    """Store a branch's tables as the file that they would be at home."""
    with tempfile.TemporaryDirectory(prefix="copy-", dir=draft.work) as folder:
        made = Path(folder) / "made.sqlite"
        copy_tables(source, f"sqlite:///{made}", BRANCHES[name])
        with closing(sqlite3.connect(made)) as reading:
            _add_database(draft, FILES[name], reading)


def _log_place(
    files: Mapping[Path, sqlite3.Connection], data: Path, small: Mapping[str, bytes]
) -> LogPlace:
    """Return where the log stands in the cut, its head's word for it."""
    head = files.get(data / "audit-head" / "head.sqlite")
    if head is None:
        raise InternalError("STO-B069", "the log's head database is missing")
    row = head.execute("SELECT origin, size, root FROM head").fetchone()
    if row is None:
        raise InternalError("STO-B069", "the log has not begun")
    note = small.get(_CHECKPOINT)
    published = 0
    if note is not None:
        published = parse_checkpoint(parse_note(note).text).size
    return LogPlace(row[0], row[1], row[2].hex(), published)
