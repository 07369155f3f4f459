from __future__ import annotations

import pytest

from stoilo.core.errors import TrustError, UsageError
from stoilo.server.engines.stock.project.directory import read_project

CONFIG = b"""<?xml version="1.0"?>
<boinc>
    <config>
        <long_name>Demo</long_name><host>vm</host>
        <db_host>  </db_host><db_name>demo</db_name>
        <db_user>boincadm</db_user><db_passwd>s3cret&amp;x</db_passwd>
        <download_dir>/srv/demo/download</download_dir>
        <download_url>http://127.0.0.1/demo/download/</download_url>
        <upload_dir>/srv/demo/upload</upload_dir>
        <uldl_dir_fanout>1024</uldl_dir_fanout>
        <one_result_per_user_per_wu/>
        <ignore_upload_certificates>0</ignore_upload_certificates>
        <delete_delay_hours>0.5</delete_delay_hours>
    </config>
    <daemons>
        <daemon><cmd>feeder -d 3 --allapps</cmd></daemon>
        <daemon><cmd>transitioner</cmd><disabled>1</disabled></daemon>
    </daemons>
</boinc>
"""


def test_project_says_what_its_config_says(tmp_path):
    (tmp_path / "config.xml").write_bytes(CONFIG)
    project = read_project(tmp_path)
    assert project.config.text("db_host") == ""
    assert project.download_url == "http://127.0.0.1/demo/download"
    assert (project.fanout, str(project.download)) == (1024, "/srv/demo/download")
    assert project.key_dir == tmp_path / "keys"
    assert project.config.flag("one_result_per_user_per_wu")
    assert [one.disabled for one in project.config.daemons] == [False, True]


def test_password_is_in_the_url_and_in_no_text(tmp_path, monkeypatch):
    monkeypatch.setenv("MYSQL_UNIX_PORT", "/my.sock")
    (tmp_path / "config.xml").write_bytes(CONFIG)
    project = read_project(tmp_path)
    assert project.database_url == (
        "mariadb+pymysql://boincadm:s3cret%26x@localhost/demo?unix_socket=%2Fmy.sock"
    )
    assert "s3cret" not in repr(project)


@pytest.mark.parametrize("data", [b"", b"<boinc/>", b"<config/>", CONFIG[:-20]])
def test_other_documents_are_refused(data, tmp_path):
    (tmp_path / "config.xml").write_bytes(data)
    with pytest.raises(TrustError, match="STO-B001"):
        read_project(tmp_path)


def test_directory_without_project_is_refused(tmp_path):
    with pytest.raises(UsageError, match="STO-B001"):
        read_project(tmp_path)
