"""What a project's database says: apps, versions, backlogs (BOINC's and ours), its clock."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import InternalError, TrustError
from stoilo.server.engines.stock.checkup.snapshot import (
    AppReplication,
    Backlog,
    DatabaseView,
    OwnView,
    VersionView,
)
from stoilo.server.engines.stock.installation.facts import open_file
from stoilo.server.engines.stock.project.database import (
    is_maria,
    join_cache_level,
    open_database,
)
from stoilo.server.engines.stock.project.tables import workunits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection


_UNCREATED: Final = """SELECT COUNT(*), MIN(created_at) FROM stoilo_workunit
 WHERE boinc_id = 0 AND outcome IS NULL"""
# An end has no time of its own: BOINC's row was last changed when it was taken.
_UNDELIVERED: Final = """SELECT COUNT(*), MIN({since}) FROM stoilo_workunit
 LEFT JOIN workunit ON workunit.id = stoilo_workunit.boinc_id WHERE undelivered = 1"""
_REFUSED: Final = """SELECT COUNT(*) FROM stoilo_workunit
 WHERE undelivered = 1 AND attempts > 0"""
# Ours say `templates/NAME`; 11 is where the name begins.
_FOREIGN: Final = """SELECT COUNT(*), MIN(stoilo_workunit.name) FROM stoilo_workunit
 JOIN workunit ON workunit.id = stoilo_workunit.boinc_id
 WHERE stoilo_workunit.outcome IS NULL AND (workunit.name <> stoilo_workunit.name
 OR SUBSTR(workunit.result_template_file, 11) <> stoilo_workunit.result_template)"""


def read_own(connection: Connection, now: int, since: str) -> OwnView:
    """Return what waits; nothing where no server has ever run on the project.

    Args:
        connection: to the project's database.
        now: s since 1970.
        since: SQL for when BOINC last changed a row of ``workunit``, s since 1970.
    """
    if not inspect(connection).has_table(workunits.name):
        return OwnView(known=False)
    foreign, name = connection.execute(text(_FOREIGN)).one()
    return OwnView(
        uncreated=_backlog(connection, _UNCREATED, now),
        undelivered=_backlog(connection, _UNDELIVERED.format(since=since), now),
        refused=int(connection.scalar(text(_REFUSED)) or 0),
        foreign=int(foreign),
        foreign_name=str(name or ""),
    )


def _backlog(connection: Connection, query: str, now: int) -> Backlog:
    count, oldest = connection.execute(text(query)).one()
    return Backlog(int(count), max(0, now - int(oldest)) if oldest else 0)


_BOUNDS: Final = XmlBounds(document_bytes=1024 * 1024, elements=1000)
_CHUNK: Final = 1024 * 1024

_VERSIONS: Final = text(
    """SELECT app.name, platform.name, app_version.version_num, app_version.plan_class,
 app_version.xml_doc FROM app_version, app, platform
 WHERE app.id = app_version.appid AND platform.id = app_version.platformid
 AND app_version.deprecated = 0 ORDER BY app_version.version_num"""
)
_REPLICATIONS: Final = text(
    """SELECT name, homogeneous_redundancy, homogeneous_app_version, target_nresults
 FROM app WHERE deprecated = 0 AND (homogeneous_redundancy <> 0
 OR homogeneous_app_version <> 0 OR target_nresults <> 0)"""
)
_DUE: Final = text(
    "SELECT COUNT(*), MIN(transition_time) FROM workunit WHERE transition_time <= :now"
)
_WAITING: Final = {
    "validations": "need_validate = 1",
    "assimilations": "assimilate_state = 1",
    "deletions": "file_delete_state = 1",
}


def read_database(
    url: str, download: Path, clock: Callable[[], float] = time.time
) -> DatabaseView:
    """Return what the database says."""
    try:
        with open_database(url, "the database") as connection:
            return _view(connection, download, clock)
    except InternalError as error:
        return DatabaseView(trouble=error.message.partition(": ")[2])


def _view(
    connection: Connection, download: Path, clock: Callable[[], float]
) -> DatabaseView:
    now = int(clock())
    apps = connection.scalars(text("SELECT name FROM app WHERE deprecated = 0"))
    return DatabaseView(
        join_cache_level=join_cache_level(connection),
        clock_ahead_s=_clock_ahead(connection, clock),
        apps=tuple(apps),
        replications=tuple(
            AppReplication(str(app), int(kind), bool(one), int(target))
            for app, kind, one, target in connection.execute(_REPLICATIONS)
        ),
        versions=_versions(connection, download),
        transitions=_transitions(connection, now),
        validations=_waiting(connection, "validations", now),
        assimilations=_waiting(connection, "assimilations", now),
        deletions=_waiting(connection, "deletions", now),
        submitters=sum(
            int(connection.scalar(text(f"SELECT COUNT(*) FROM {table}")) or 0)  # noqa: S608
            for table in ("user_submit", "user_submit_app")
        ),
        own=read_own(connection, now, _since(connection)),
    )


def _clock_ahead(connection: Connection, clock: Callable[[], float]) -> float:
    if not is_maria(connection):
        return 0.0
    now = connection.exec_driver_sql("SELECT UNIX_TIMESTAMP(NOW(6))").scalar_one()
    return float(now) - clock()


def _transitions(connection: Connection, now: int) -> Backlog:
    count, oldest = connection.execute(_DUE, {"now": now}).one()
    return Backlog(int(count), max(0, now - int(oldest)) if oldest else 0)


def _since(connection: Connection) -> str:
    return (
        "UNIX_TIMESTAMP(workunit.mod_time)"
        if is_maria(connection)
        else "workunit.mod_time"
    )


def _waiting(connection: Connection, name: str, now: int) -> Backlog:
    """Return the rows that wait for one daemon; what changed a row last began its wait."""
    since, where = _since(connection), _WAITING[name]
    query = f"SELECT COUNT(*), MIN({since}) FROM workunit WHERE {where}"  # noqa: S608 - our own words
    count, oldest = connection.execute(text(query)).one()
    return Backlog(int(count), max(0, now - int(oldest)) if oldest else 0)


def _versions(connection: Connection, download: Path) -> tuple[VersionView, ...]:
    newest: dict[tuple[str, str, str], VersionView] = {}
    sums: dict[str, tuple[int, str]] = {}
    for app, platform, number, plan, xml in connection.execute(_VERSIONS):
        data = bytes(xml) if isinstance(xml, bytes) else str(xml or "").encode()
        names = _file_names(data)
        for name in names:
            if name not in sums:
                sums[name] = _measure(download / name)
        newest[app, platform, plan] = VersionView(
            app,
            platform,
            int(number),
            plan,
            data,
            {name: sums[name][0] for name in names},
            {name: sums[name][1] for name in names},
        )
    return tuple(newest.values())


def _file_names(xml: bytes) -> tuple[str, ...]:
    """Return the files of an app version; those with a path are not BOINC's."""
    try:
        root = parse_xml(b"<x>" + xml + b"</x>", _BOUNDS)
        names = [info.string("name") for info in root.every("file_info")]
    except TrustError:
        return ()
    return tuple(name for name in names if name and "/" not in name and name[0] != ".")


def _measure(path: Path) -> tuple[int, str]:
    md5, size = hashlib.md5(usedforsecurity=False), 0
    try:
        with open_file(path) as stream:
            while chunk := stream.read(_CHUNK):
                md5.update(chunk)
                size += len(chunk)
    except OSError:
        return -1, ""
    return size, md5.hexdigest()
