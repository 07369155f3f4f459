"""Making a fake project: its directory, its tools as executable files, its tables."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import stoilo
from stoilo.server.engines.stock.project.directory import StockProject, read_project
from stoilo.server.engines.stock.script_server import ENTRY_POINTS, entry_point_text
from tests.support.stocktools.database import CLOCK, SETTINGS, FakeDatabase
from tests.support.stocktools.tables import create_statements

APPS: Final = ("pure", "numeric", "tensor")
PLATFORM: Final = "x86_64-pc-linux-gnu"
_TOOLS: Final = {
    "create_work": "creatework",
    "cancel_jobs": "canceljobs",
    "stage_file_native": "stagefile",
    "xadd": "xadd",
    "update_versions": "updateversions",
    "status": "status",
}
_TOOL: Final = """#!{python} -S
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.support.stocktools.{module} import main
sys.exit(main(sys.argv[1:], Path({root!r})))
"""
_CONFIG: Final = """<?xml version="1.0"?>
<boinc>
  <config>
    <long_name>Fake</long_name><host>localhost</host>
    <master_url>http://fake.example/</master_url>
    <db_host>localhost</db_host><db_name>fake</db_name>
    <db_user>fake</db_user><db_passwd>fake</db_passwd>
    <download_dir>{root}/download</download_dir>
    <download_url>http://fake.example/download</download_url>
    <upload_dir>{root}/upload</upload_dir>
    <upload_url>http://fake.example/file_upload_handler</upload_url>
    <key_dir>{root}/keys</key_dir>
    <uldl_dir_fanout>1024</uldl_dir_fanout>
    <cache_md5_info>1</cache_md5_info>
    <one_result_per_user_per_wu>1</one_result_per_user_per_wu>
    <send_result_abort>1</send_result_abort>
  </config>
  <daemons>
    <daemon><cmd>feeder --allapps --sleep_interval 1</cmd></daemon>
    <daemon><cmd>transitioner --sleep_interval 1</cmd></daemon>
  </daemons>
</boinc>
"""

_PROJECT: Final = f"<boinc>\n<platform><name>{PLATFORM}</name></platform>\n</boinc>\n"


@dataclass(frozen=True, slots=True)
class FakeProject:
    """A fake project.

    Attributes:
        project: as the engine reads it.
        database_url: of its tables, in SQLAlchemy's form.
    """

    project: StockProject
    database_url: str

    @property
    def root(self) -> Path:
        """Return its directory."""
        return self.project.root

    def set_clock(self, now: int) -> None:
        """Set the time, s, that its tools believe."""
        (self.root / CLOCK).write_text(str(now))

    def open_database(self) -> FakeDatabase:
        """Return a connection to its tables."""
        return FakeDatabase(self.database_url)


def make_fake_project(
    root: Path, database_url: str = "", apps: tuple[str, ...] = APPS
) -> FakeProject:
    """Make a project in an empty directory, on SQLite in it or on a MariaDB.

    Args:
        root: the directory.
        database_url: an empty database; empty: a file in the directory.
        apps: names, each with an app version; none: an installation is to make them.
    """
    root = root.resolve()
    folders = ("bin", "templates", "download", "upload", "keys", "stoilo", "tmp_fake")
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    url = database_url or f"sqlite:///{root / 'boinc.sqlite'}"
    (root / "config.xml").write_text(_CONFIG.format(root=root))
    (root / "project.xml").write_text(_PROJECT)
    write_tools(root, url)
    _make_tables(url, apps)
    project = read_project(root)
    write_entry_points(project)
    return FakeProject(project, url)


def write_entry_points(project: StockProject) -> tuple[Path, ...]:
    """Write the scripts that BOINC's daemons run; returns where."""
    paths = tuple(project.tool(name) for name in ENTRY_POINTS)
    for path in paths:
        path.write_text(entry_point_text(sys.executable))
        path.chmod(0o755)
    return paths


def write_tools(root: Path, database_url: str, *names: str) -> None:
    """Write the tools into a project's ``bin``, all of them or those that are named."""
    import pymysql  # noqa: PLC0415 - its place is what is needed

    path = [
        str(Path(stoilo.__file__).parent.parent),
        str(Path(pymysql.__file__).parent.parent),
    ]
    (root / SETTINGS).write_text(json.dumps({"url": database_url}))
    for tool in names or _TOOLS:
        module = _TOOLS[tool]
        text = _TOOL.format(
            python=sys.executable, path=path, module=module, root=str(root)
        )
        place = root / "bin" / tool
        place.write_text(text)
        place.chmod(0o755)


def _make_tables(url: str, apps: tuple[str, ...]) -> None:
    database = FakeDatabase(url)
    for statement in create_statements(sqlite=url.startswith("sqlite")):
        database.run(statement)
    database.insert("platform", [{"name": PLATFORM}])
    if apps:
        _insert_apps(database, apps)
    database.close()


def _insert_apps(database: FakeDatabase, apps: tuple[str, ...]) -> None:
    database.insert("app", [{"name": name} for name in apps])
    database.insert(
        "app_version",
        [
            {"appid": number, "platformid": 1, "version_num": 100}
            for number, _ in enumerate(apps, 1)
        ],
    )
