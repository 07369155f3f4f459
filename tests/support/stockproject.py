"""A stock project's directory as `make_project` leaves it, without BOINC, for tests.

Its database is an SQLite file with those of BOINC's columns that are looked at; its
``bin/xadd`` and ``bin/update_versions`` are the played ones of `stocktools`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from stoilo.server.engines.stock.installation.facts import short_host
from stoilo.server.engines.stock.project.directory import StockProject, read_project
from stoilo.server.release.parts import ReleasedPrograms
from tests.support.programs import ProgramSigner
from tests.support.stocktools.project import write_tools

__all__ = ["CONFIG", "StockTree"]

CONFIG: Final = """<?xml version="1.0" ?>
<boinc>
    <config>
        <!-- the operator's own words: <host>elsewhere</host> -->
        <long_name>Test</long_name>
        <db_user>boincadm</db_user>
        <db_name>test</db_name>
        <db_passwd>secret</db_passwd>
        <db_host>
        </db_host>
        <uldl_dir_fanout>1024</uldl_dir_fanout>
        <host>localhost</host>
        <min_sendwork_interval>6</min_sendwork_interval>
        <daily_result_quota>500</daily_result_quota>
        <cache_md5_info>1</cache_md5_info>
        <one_result_per_user_per_wu>0</one_result_per_user_per_wu>
        <send_result_abort>1</send_result_abort>
        <dont_generate_upload_certificates>1</dont_generate_upload_certificates>
        <ignore_upload_certificates>1</ignore_upload_certificates>
        <master_url>http://127.0.0.1:9/test/</master_url>
        <download_url>http://127.0.0.1:9/test/download</download_url>
        <upload_url>http://127.0.0.1:9/test_cgi/file_upload_handler</upload_url>
    </config>
    <tasks>
    </tasks>
    <daemons>
        <daemon>
            <cmd>feeder -d 3 </cmd>
        </daemon>
        <daemon>
            <cmd>transitioner -d 3 </cmd>
        </daemon>
        <daemon>
            <cmd>file_deleter -d 3 </cmd>
        </daemon>
    </daemons>
</boinc>
"""
_TABLES: Final = """
CREATE TABLE app (id INTEGER PRIMARY KEY, name TEXT, deprecated INTEGER DEFAULT 0,
 homogeneous_redundancy INTEGER DEFAULT 0, homogeneous_app_version INTEGER DEFAULT 0,
 target_nresults INTEGER DEFAULT 0);
CREATE TABLE platform (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE app_version (id INTEGER PRIMARY KEY, appid INTEGER, version_num INTEGER,
 platformid INTEGER, xml_doc TEXT, plan_class TEXT DEFAULT '', deprecated INTEGER DEFAULT 0);
CREATE TABLE user (id INTEGER PRIMARY KEY, project_prefs BLOB);
CREATE TABLE host (id INTEGER PRIMARY KEY);
CREATE TABLE result (id INTEGER PRIMARY KEY, server_state INTEGER,
 xml_doc_in TEXT DEFAULT '');
CREATE TABLE workunit (id INTEGER PRIMARY KEY, transition_time INTEGER,
 need_validate INTEGER DEFAULT 0, assimilate_state INTEGER DEFAULT 0,
 file_delete_state INTEGER DEFAULT 0, mod_time INTEGER DEFAULT 0);
CREATE TABLE user_submit (user_id INTEGER);
CREATE TABLE user_submit_app (user_id INTEGER, app_id INTEGER);
"""
_PROJECT: Final = """<boinc>
    <platform>
        <name>x86_64-pc-linux-gnu</name>
    </platform>
</boinc>
"""


class StockTree:
    """One project's directory.

    Args:
        folder: an empty directory.

    Attributes:
        root: the project's.
        offer: programs that are signed for it.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self._database = folder / "database.sqlite"
        self.signer = ProgramSigner()
        self.offer = ReleasedPrograms((self.signer.program(),), self.signer.key)
        for name in ("bin", "keys", "download", "upload", "apps", "html/project"):
            (self.root / name).mkdir(parents=True)
        self.write("config.xml", CONFIG)
        self.write("project.xml", _PROJECT)
        self.write("keys/code_sign_public", "1024\nold\n.\n")
        self.write("keys/upload_private", "upload\n")
        (self.root / "keys" / "upload_private").chmod(0o600)
        with closing(sqlite3.connect(self._database)) as database:
            database.executescript(_TABLES)
        write_tools(self.root, self.url, "xadd", "update_versions")

    @property
    def url(self) -> str:
        """Return its database's URL."""
        return f"sqlite:///{self._database}"

    def project(self) -> StockProject:
        """Return what its config.xml says now."""
        return read_project(self.root)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def sql(
        self, query: str, values: Sequence[object] = ()
    ) -> list[tuple[object, ...]]:
        """Do one statement in its database and return the rows."""
        with closing(sqlite3.connect(self._database)) as database, database:
            return database.execute(query, values).fetchall()

    def start_daemon(self, pid_file: str, pid: int) -> None:
        """Write a daemon's pid file."""
        self.write(f"pid_{short_host()}/{pid_file}", f"{pid}\n")
