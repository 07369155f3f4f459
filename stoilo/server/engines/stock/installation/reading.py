"""Reads what a stock project is now: its files, its database; changes nothing."""

from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.server.engines.stock.installation.notes import STAGE_FILES
from stoilo.server.engines.stock.installation.planning import (
    CONFIG_FILE,
    PLAN_CLASS_FILE,
    PROJECT_FILE,
    ProjectFacts,
)
from stoilo.server.engines.stock.installation.preferences import PREFERENCES_FILE
from stoilo.server.engines.stock.installation.versions import (
    KnownVersion,
    parse_version_name,
)
from stoilo.signer.boinckeys import parse_boinc_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.project import StockProject

__all__ = [
    "find_private_keys",
    "read_bounded",
    "read_facts",
    "read_mode",
    "short_host",
]

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_KEY_BYTES: Final = 16 * 1024
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
    files = {
        name: data for name in names if (data := read_bounded(root / name)) is not None
    }
    places = (*_MODES, f"log_{short_host()}")
    modes = {
        name: mode for name in places if (mode := read_mode(root / name)) is not None
    }
    key_dir = Path(project.config.key_dir or root / "keys")
    facts = ProjectFacts(
        files=files,
        modes=modes,
        host=short_host(),
        key=(read_bounded(key_dir / "code_sign_public") or b"").decode(
            "ascii", "replace"
        ),
        key_dir=_below(root, key_dir),
        private_keys=find_private_keys(root, key_dir),
        versions=tuple(_versions(root / "apps")),
    )
    return _with_database(facts, url or project.database_url)


def _below(root: Path, path: Path) -> str:
    """Return a directory's name from the project's, absolute where it is elsewhere."""
    path = path.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def read_bounded(path: Path) -> bytes | None:
    """Return a file's bytes, None where there is none."""
    try:
        with path.open("rb") as stream:
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


def read_mode(path: Path) -> int | None:
    """Return permissions, None where there is nothing."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def find_private_keys(root: Path, key_dir: Path) -> tuple[str, ...]:
    """Return the files that hold a private code-sign key, by name or by content.

    Looks into the key directory and the top of the project. BOINC's upload key, which a
    server needs, is left out by its name, unless it is the code-sign key under that name.
    """
    public = _read_small(key_dir / "code_sign_public").split()
    found = [
        path
        for path in (*_files(key_dir), *_files(root))
        if _signs(path.name, _read_small(path), public)
    ]
    return tuple(sorted({_below(root, path) for path in found}))


def _signs(name: str, content: str, public: list[str]) -> bool:
    """Whether a file of that name and content holds a private code-sign key."""
    if "code_sign_private" in name:
        return True
    if not _is_private(content):
        return False
    upload = name.startswith("upload_private")
    return not upload or _same_modulus(content.split(), public)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a directory, in order."""
    try:
        listed = sorted(folder.iterdir())[:MOST_ENTRIES]
    except OSError:
        return
    yield from (path for path in listed if path.is_file())


def _read_small(path: Path) -> str:
    """Return a small text file, empty where it is none."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_KEY_BYTES + 1)
    except OSError:
        return ""
    return "" if len(data) > MAX_KEY_BYTES else data.decode("ascii", "replace")


def _is_private(text_: str) -> bool:
    """Whether a text is a private key of BOINC's or in PEM form."""
    if "PRIVATE KEY-----" in text_:
        return True
    try:
        parse_boinc_private(text_)
    except TrustError:
        return False
    return True


def _same_modulus(private: list[str], public: list[str]) -> bool:
    """Whether the first numbers of two keys, as lines of hex, are the same."""
    lines = 4  # 128 bytes
    return len(public) > lines and private[1 : lines + 1] == public[1 : lines + 1]


def _versions(apps: Path) -> Iterator[KnownVersion]:
    """Yield the app versions below ``apps/``."""
    for app in _folders(apps):
        for version in _folders(app):
            number = parse_version_name(version.name)
            if number is None:
                continue
            for platform in _folders(version):
                yield KnownVersion(app.name, number, platform.name, _content(platform))


def _folders(folder: Path) -> list[Path]:
    """Return the visible directories of a directory."""
    try:
        listed = sorted(folder.iterdir())[:MOST_ENTRIES]
    except OSError:
        return []
    return [path for path in listed if path.is_dir() and path.name[0] != "."]


def _content(folder: Path) -> frozenset[tuple[str, str]]:
    """Return names and texts of signatures and description of an app version."""
    return frozenset(
        (path.name, _read_small(path).strip())
        for path in _files(folder)
        if path.suffix == ".sig" or path.name == "version.xml"
    )


_UNCERTIFIED: Final = (
    "result WHERE server_state <> 5 AND xml_doc_in NOT LIKE '%<xml_signature>%'"
)
_VERSIONS: Final = """SELECT app.name, app_version.version_num, platform.name,
 app_version.plan_class FROM app_version, app, platform
 WHERE app.id = app_version.appid AND platform.id = app_version.platformid"""


def _with_database(facts: ProjectFacts, url: str) -> ProjectFacts:
    """Return `facts` with what the database says; raises ``STO-B025``."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return _ask(facts, connection)
    except SQLAlchemyError as error:
        raise InternalError(
            "STO-B025", "the project's database does not answer as BOINC's does"
        ) from error
    finally:
        engine.dispose()


def _ask(facts: ProjectFacts, connection: Connection) -> ProjectFacts:
    """Return `facts` with what the database says."""

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
    return ProjectFacts(
        files=facts.files,
        modes=facts.modes,
        host=facts.host,
        key=facts.key,
        key_dir=facts.key_dir,
        private_keys=facts.private_keys,
        versions=facts.versions,
        apps=names("app"),
        platforms=names("platform"),
        registered=frozenset(registered),
        hosts=count("host"),
        uncertified=count(_UNCERTIFIED),
        submitters=count("user_submit") + count("user_submit_app"),
        join_cache_level=_join_cache_level(connection),
    )


def _join_cache_level(connection: Connection) -> int:
    """Return MariaDB's setting, 0 on any other database."""
    if connection.dialect.name not in {"mysql", "mariadb"}:
        return 0
    return int(
        connection.exec_driver_sql("SELECT @@GLOBAL.join_cache_level").scalar_one()
    )
