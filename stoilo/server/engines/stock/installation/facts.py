"""What a stock project is now: its files and its database, as `plan` and `checks` judge them.

Reading changes nothing. Trust: whoever owns the project chooses what lies in it, so files
are bounded, and read with his rights where root reads.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from stoilo.core.errors import UsageError
from stoilo.server.engines.stock.app_versions import read_offered
from stoilo.server.engines.stock.installation.owner import Owner, acting_as
from stoilo.server.engines.stock.installation.private_keys import (
    KeySearch,
    below,
    find_private_keys,
)
from stoilo.server.engines.stock.project.database import join_cache_level
from stoilo.server.engines.stock.project.levels import PREFERENCES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from io import BufferedReader
    from pathlib import Path

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.app_versions import OfferedVersion
    from stoilo.server.engines.stock.project.directory import StockProject

CONFIG_FILE: Final = "config.xml"
PROJECT_FILE: Final = "project.xml"
PLAN_CLASS_FILE: Final = "plan_class_spec.xml"
UPLOAD_KEY: Final = "upload_private"
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_FILES: Final = (CONFIG_FILE, PROJECT_FILE, PLAN_CLASS_FILE, PREFERENCES_FILE)
_PLACES: Final = ("download", "upload", "templates", "stoilo", CONFIG_FILE)
_CHANGE: Final = re.compile(rb'array\((\d{1,9}), *"update_')


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the project's database says of what an installation makes."""

    apps: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    # app → the highest number of its versions, deprecated ones too
    numbers: Mapping[str, int] = field(default_factory=dict)
    offered: tuple[OfferedVersion, ...] = ()  # oldest first
    hosts: int = 0  # computers that have called
    uncertified: int = 0  # results under way without an upload certificate
    submitters: int = 0  # accounts that may use BOINC's own way to submit
    join_cache_level: int = 0  # MariaDB's


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What a project is now."""

    # by name below the project; absent ones are left out
    files: Mapping[str, bytes]
    modes: Mapping[str, int]
    host: str  # short name of this machine
    key: str = ""  # text of `code_sign_public`, empty without one
    key_dir: str = "keys"
    keys: KeySearch = field(default_factory=KeySearch)
    closed_folders: tuple[str, ...] = ()  # of download: the web server may not read
    # BOINC's number of what its tables are, and of what its files need
    tables: tuple[int, int] | None = None
    database: DatabaseFacts | None = None  # None: it did not answer, or was not asked


def short_host() -> str:
    """Return this machine's name as ``bin/start`` compares it."""
    return socket.gethostname().partition(".")[0]


def read_facts(project: StockProject, wanted: Iterable[str] = ()) -> ProjectFacts:
    """Return what the files of a project say, those named in `wanted` too.

    Raises:
        UsageError: ``STO-B001`` a file of the project cannot be read.
    """
    root, key_dir = project.root, project.key_dir
    # with the owner's rights: what is read here is written again, for all to see
    with acting_as(Owner.of(root)):
        found = {name: read_small_file(root / name) for name in (*_FILES, *wanted)}
        key = read_small_file(key_dir / "code_sign_public") or b""
    skipped = (project.download, project.upload, project.own / "kept")
    return ProjectFacts(
        files={name: data for name, data in found.items() if data is not None},
        modes=_modes(project, wanted),
        host=short_host(),
        key=key.decode("ascii", "replace"),
        key_dir=below(root, key_dir),
        keys=find_private_keys(root, key_dir, skipped),
        closed_folders=_closed_folders(project.download),
        tables=_read_tables(root),
    )


def read_small_file(path: Path) -> bytes | None:
    """Return a file's bytes, None where there is none; raises ``STO-B001``."""
    try:
        with open_file(path) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            "STO-B001",
            f"{path.name} cannot be read: {error.strerror}",
            hint="run it as the project's owner or as root",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError("STO-B001", f"{path.name} is larger than any that BOINC makes")
    return data


def open_file(path: Path) -> BufferedReader:
    """Open a file to be read; raises `OSError`, also for a pipe, which would never end.

    Links are followed: an operator may keep config.xml elsewhere.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file")
    return os.fdopen(handle, "rb")


def _modes(project: StockProject, wanted: Iterable[str]) -> dict[str, int]:
    """Return the permissions of places that an installation sets, where they are."""
    names = (*_PLACES, f"log_{short_host()}", *wanted)
    paths = {name: project.root / name for name in names}
    paths[UPLOAD_KEY] = project.key_dir / UPLOAD_KEY
    found = {}
    for name, path in paths.items():
        try:
            found[name] = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
    return found


def _closed_folders(download: Path) -> tuple[str, ...]:
    """Return directories that neither everybody nor the project's group may read."""
    try:
        group = download.stat().st_gid
        with os.scandir(download) as entries:
            folders = {one.name: one.stat() for one in entries if one.is_dir()}
    except OSError:
        return (".",)
    closed = [name for name, found in folders.items() if not _is_open(found, group)]
    return tuple(sorted(closed))


def _is_open(found: os.stat_result, group: int) -> bool:
    theirs = stat.S_IRGRP | stat.S_IXGRP
    for_all = stat.S_IROTH | stat.S_IXOTH
    return found.st_mode & for_all == for_all or (
        found.st_gid == group and found.st_mode & theirs == theirs
    )


def _read_tables(root: Path) -> tuple[int, int] | None:
    """Compare as BOINC's `html/ops/upgrade_db.php` does; None: the project does not say."""
    there = (read_small_file(root / "db_revision") or b"").strip()
    changes = read_small_file(root / "html" / "ops" / "db_update.php") or b""
    known = [int(number) for number in _CHANGE.findall(changes)]
    if not known or not there.isdigit():
        return None
    return int(there[:9]), max(known)


_UNCERTIFIED: Final = (
    "result WHERE server_state <> 5 AND xml_doc_in NOT LIKE '%<xml_signature>%'"
)
_NUMBERS: Final = """SELECT app.name, MAX(app_version.version_num) FROM app_version, app
 WHERE app.id = app_version.appid GROUP BY app.name"""


def ask_database(facts: ProjectFacts, connection: Connection) -> ProjectFacts:
    """Return `facts` with what the project's database says."""

    def names(table: str) -> tuple[str, ...]:
        query = f"SELECT name FROM {table}"  # noqa: S608 - our own words
        return tuple(connection.scalars(text(query)))

    def count(what: str) -> int:
        query = f"SELECT COUNT(*) FROM {what}"  # noqa: S608 - our own words
        return int(connection.scalar(text(query)) or 0)

    found = DatabaseFacts(
        apps=names("app"),
        platforms=names("platform"),
        numbers=dict(map(tuple, connection.execute(text(_NUMBERS)))),
        offered=read_offered(connection),
        hosts=count("host"),
        uncertified=count(_UNCERTIFIED),
        submitters=count("user_submit") + count("user_submit_app"),
        join_cache_level=join_cache_level(connection),
    )
    return replace(facts, database=found)
