"""Where the engine's tables lie; a project is never moved without being told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoilo.core.errors import UsageError
from stoilo.server.config import ServerConfig, load_config

MARIADB = "mariadb+pymysql://a:b@localhost/stoilo"


def test_without_settings_each_part_has_a_file(tmp_path: Path) -> None:
    url = ServerConfig(data=tmp_path).engine_database_url
    assert url == f"sqlite:///{tmp_path / 'engine' / 'engine.sqlite'}"


def test_engine_goes_where_the_server_goes(tmp_path: Path) -> None:
    assert ServerConfig(data=tmp_path, database=MARIADB).engine_database_url == MARIADB


def test_file_in_use_is_not_left_silently(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "engine.sqlite").touch()
    moved = ServerConfig(data=tmp_path, database=MARIADB)
    with pytest.raises(UsageError, match="STO-R090"):
        str(moved.engine_database_url)
    chosen = ServerConfig(data=tmp_path, database=MARIADB, engine_database=MARIADB)
    assert chosen.engine_database_url == MARIADB


@pytest.mark.parametrize(
    ("address", "good"),
    [("", True), ("127.0.0.1:0", True), ("[::1]:9", True), ("0.0.0.0:9", False)],
)
def test_watch_address_is_loopback(tmp_path: Path, address: str, good: bool) -> None:
    if good:
        assert load_config(tmp_path, {"watch": address}, {})[0].watch == address
        return
    with pytest.raises(UsageError, match="STO-R090"):
        load_config(tmp_path, {"watch": address}, {})
