from __future__ import annotations

import os
from pathlib import Path

import pymysql
import pytest
from sqlalchemy import create_engine, text

from stoilo.core.errors import InternalError
from tests.support import mariadb as module
from tests.support.mariadb import MariaServer


def test_server_leaves_no_process_and_no_file(mariadb, find_survivors):
    del mariadb  # where it is not installed this is skipped
    with MariaServer() as server:
        pid, directory = server.process.pid, server.directory
        assert directory.exists()
    assert not directory.exists()
    assert pid not in find_survivors(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_server_of_root_runs_as_nobody(mariadb):
    assert Path(f"/proc/{mariadb.process.pid}").stat().st_uid == 65534


def test_server_answers_its_own_account_only(mariadb):
    with pytest.raises(pymysql.OperationalError, match="Access denied"):
        pymysql.connect(unix_socket=str(mariadb.socket), user="root")


def test_databases_are_empty_and_apart(mariadb):
    first, second = mariadb.create_database(), mariadb.create_database()
    for url in (first, second):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE a (b INTEGER)"))
        engine.dispose()


def test_missing_program_is_said(monkeypatch):
    monkeypatch.setattr(module, "find_mariadbd", lambda: None)
    with pytest.raises(InternalError, match="mariadb-server-core"), MariaServer():
        pass
