"""`db_host` as BOINC's own programs read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from stoilo.server.db.mariadb import open_mariadb
from stoilo.server.engines.stock.project import directory as projects
from stoilo.server.engines.stock.project.config import ConfigText
from stoilo.server.engines.stock.project.database import (
    SOCKETS,
    find_socket,
    parse_host,
)
from stoilo.server.engines.stock.project.directory import StockProject
from tests.support.mariadb import MariaServer

MEANINGS = {
    "": ("localhost", 0),
    "localhost": ("localhost", 0),
    "localhost:3307": ("localhost", 3307),  # the port is of no use to a socket
    "vm.example": ("localhost", 0),  # this machine's own name
    "127.0.0.1": ("127.0.0.1", 0),
    "db.example": ("db.example", 0),
    "db.example:3307": ("db.example", 3307),
    "db.example:": ("db.example", 0),
    "db.example:many": ("db.example", 0),
    "db.example:999999": ("db.example", 0),
}


@pytest.mark.parametrize(("text", "meaning"), MEANINGS.items(), ids=repr)
def test_host_means_what_it_means_to_boinc(text, meaning):
    assert parse_host(text, "vm.example") == meaning


@given(st.text(max_size=40))
def test_any_host_has_a_meaning(text):
    assert 0 <= parse_host(text, "vm")[1] < 100_000


def test_socket_is_the_named_one_or_the_one_that_is_there():
    assert find_socket({"MYSQL_UNIX_PORT": "/x"}, lambda _path: True) == "/x"
    assert find_socket({}, lambda path: path == SOCKETS[2]) == SOCKETS[2]
    assert find_socket({}, lambda _path: False) == SOCKETS[0]


def project_on(tmp_path, server, db_host):
    url = make_url(server.create_database())
    config = ConfigText(
        {
            "db_host": db_host,
            "db_name": url.database,
            "db_user": url.username,
            "db_passwd": url.password or "",
        }
    )
    return StockProject(tmp_path, config)


def ask(project):
    engine = open_mariadb(project.database_url)
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql("SELECT 1").scalar()
    finally:
        engine.dispose()


@pytest.mark.parametrize("db_host", ["", "localhost", "localhost:3307"])
def test_server_without_a_port_is_reached_by_its_socket(tmp_path, monkeypatch, db_host):
    with MariaServer() as server:  # listens on a socket only
        monkeypatch.setenv("MYSQL_UNIX_PORT", str(server.socket))
        assert ask(project_on(tmp_path, server, db_host)) == 1


def test_without_the_meaning_it_is_not_reached(tmp_path, monkeypatch):
    """The control: ``localhost`` as PyMySQL reads it, a TCP connection."""
    monkeypatch.setattr(projects, "find_socket", lambda *_: "")
    with MariaServer() as server, pytest.raises(Exception, match="2003"):
        ask(project_on(tmp_path, server, "localhost"))


def test_host_and_port_are_a_tcp_address(tmp_path):
    config = ConfigText(
        {"db_host": "db.example:3307", "db_name": "demo", "db_user": "b"}
    )
    url = make_url(StockProject(tmp_path, config).database_url)
    assert (url.host, url.port, dict(url.query)) == ("db.example", 3307, {})
