"""Reads what a stock project is now: its files, its database; changes nothing."""

from __future__ import annotations

import errno
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from sqlalchemy import text

from stoilo.core.errors import UsageError
from stoilo.server.engines.stock.installation.app_versions import (
    KnownVersion,
    parse_version_name,
)
from stoilo.server.engines.stock.installation.apply import UNMARKED
from stoilo.server.engines.stock.installation.levels import (
    APPS,
    PREFERENCES_FILE,
    plan_classes,
)
from stoilo.server.engines.stock.installation.owner import Owner, acting_as
from stoilo.server.engines.stock.installation.plan import (
    CONFIG_FILE,
    PLAN_CLASS_FILE,
    PROJECT_FILE,
    STAGE_FILES,
    ProjectFacts,
)
from stoilo.server.engines.stock.installation.private_keys import (
    below,
    find_private_keys,
    read_small,
)
from stoilo.server.engines.stock.project.database import (
    join_cache_level,
    open_database,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.installation.private_keys import KeySearch
    from stoilo.server.engines.stock.project.directory import StockProject


MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MOST_ENTRIES: Final = 10_000
_MODES: Final = ("download", "upload", "templates", "stoilo", CONFIG_FILE)


def short_host() -> str:
    """Return this machine's name as ``bin/start`` compares it."""
    return socket.gethostname().partition(".")[0]


def read_facts(
    project: StockProject, wanted: Iterable[str] = (), *, url: str = ""
) -> ProjectFacts:
    """Return what a project is now.

    Args:
        project: of `read_project`.
        wanted: names of further files whose content is asked for.
        url: of its database (SQLAlchemy form), if another than config.xml names.

    Raises:
        UsageError: ``STO-B024`` a file of the project cannot be read.
        InternalError: ``STO-B025`` its database does not answer.
    """
    root = project.root
    names = (
        *(CONFIG_FILE, PROJECT_FILE, PLAN_CLASS_FILE, PREFERENCES_FILE),
        *STAGE_FILES,
        *wanted,
    )
    key_dir = project.key_dir
    with acting_as(
        Owner.of(root)
    ):  # what is read here is written again, for all to see
        files = {
            name: data
            for name in names
            if (data := read_bounded(root / name)) is not None
        }
        key = read_bounded(key_dir / "code_sign_public") or b""
    places = (*_MODES, f"log_{short_host()}")
    modes = {
        name: mode for name in places if (mode := read_mode(root / name)) is not None
    }
    facts = ProjectFacts(
        files=files,
        modes=modes,
        host=short_host(),
        key=key.decode("ascii", "replace"),
        key_dir=below(root, key_dir),
        keys=search_keys(project),
        versions=tuple(_versions(root / "apps")),
    )
    what = "the project's database does not answer as BOINC's does"
    with open_database(url or project.database_url, what) as connection:
        return _ask(facts, connection)


def search_keys(project: StockProject) -> KeySearch:
    """Return where private code-sign keys lie on a project's server."""
    skipped = (project.download, project.upload, project.own / "kept")
    return find_private_keys(project.root, project.key_dir, skipped)


def read_bounded(path: Path) -> bytes | None:
    """Return a file's bytes, None where there is none."""
    try:
        with open_file(path) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            "STO-B024", f"{path.name} cannot be read: {error.strerror}"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError("STO-B024", f"{path.name} is larger than any that BOINC makes")
    return data


def open_file(path: Path) -> BinaryIO:
    """Open a file to be read; raises `OSError`, also for a pipe, which would never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file")
    return os.fdopen(handle, "rb")


def read_mode(path: Path) -> int | None:
    """Return permissions, None where there is nothing."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _files(folder: Path) -> Iterator[Path]:
    try:
        listed = sorted(folder.iterdir())[:MOST_ENTRIES]
    except OSError:
        return
    yield from (path for path in listed if path.is_file())


def _versions(apps: Path) -> Iterator[KnownVersion]:
    for app in _folders(apps):
        for version in _folders(app):
            number = parse_version_name(version.name)
            if number is None:
                continue
            for platform in _folders(version):
                yield KnownVersion(app.name, number, platform.name, _content(platform))


def _folders(folder: Path) -> list[Path]:
    try:
        listed = sorted(folder.iterdir())[:MOST_ENTRIES]
    except OSError:
        return []
    return [path for path in listed if path.is_dir() and path.name[0] != "."]


def _content(folder: Path) -> frozenset[tuple[str, str]]:
    return frozenset(
        (path.name, (read_small(path) or "").strip())
        for path in _files(folder)
        if path.suffix == ".sig" or path.name == "version.xml"
    )


_UNCERTIFIED: Final = (
    "result WHERE server_state <> 5 AND xml_doc_in NOT LIKE '%<xml_signature>%'"
)
_VERSIONS: Final = """SELECT app.name, app_version.version_num, platform.name,
 app_version.plan_class FROM app_version, app, platform
 WHERE app.id = app_version.appid AND platform.id = app_version.platformid"""


_OFFERED: Final = """SELECT app_version.id, app.name, app_version.plan_class
 FROM app_version, app WHERE app.id = app_version.appid AND app_version.deprecated = 0"""


def _ask(facts: ProjectFacts, connection: Connection) -> ProjectFacts:

    def names(table: str) -> tuple[str, ...]:
        sql = f"SELECT name FROM {table}"  # noqa: S608 - our own words
        return tuple(connection.scalars(text(sql)))

    def count(query: str) -> int:
        sql = f"SELECT COUNT(*) FROM {query}"  # noqa: S608 - our own words
        return int(connection.scalar(text(sql)) or 0)

    registered = {
        (app, number, f"{platform}__{plan}" if plan else platform)
        for app, number, platform, plan in connection.execute(text(_VERSIONS))
    }
    unclassed = [
        row
        for row, app, plan in connection.execute(text(_OFFERED))
        if app in APPS and plan not in plan_classes(app)
    ]
    return replace(
        facts,
        apps=names("app"),
        platforms=names("platform"),
        registered=frozenset(registered),
        unclassed=tuple(sorted(unclassed)),
        unmarked=count(UNMARKED),
        hosts=count("host"),
        uncertified=count(_UNCERTIFIED),
        submitters=count("user_submit") + count("user_submit_app"),
        join_cache_level=join_cache_level(connection),
    )
