"""Rows travel between databases unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, insert, inspect, select

from stoilo.server.backup.tables import copy_tables, drop_tables
from stoilo.server.db import schema
from stoilo.server.db.store import SERVER, Store
from stoilo.server.migrations import read_revision
from tests.support.mariadb import MariaServer

VALUES = (b"", b"\x00\xff" * 600, "Ünicode\u2028".encode())
Make = Callable[[], str]


def fill(store: Store) -> None:
    rows = [
        {"key": f"{n:064x}", "body": body, "created_at": 2**40 + n}
        for n, body in enumerate(VALUES * 100)
    ]
    with store.write() as connection:
        connection.execute(insert(schema.verdict), rows)


def rows_in(connection: Connection) -> list[tuple[object, ...]]:
    query = select(schema.verdict).order_by(schema.verdict.c.key)
    return [tuple(row) for row in connection.execute(query)]


@pytest.fixture
def make_files(tmp_path: Path) -> Make:
    count = iter(range(10))
    return lambda: f"sqlite:///{tmp_path}/{next(count)}.sqlite"


@pytest.fixture
def make_mariadb(mariadb: MariaServer) -> Make:
    return mariadb.create_database


@pytest.fixture(params=["files to mariadb", "mariadb to files"])
def urls(
    request: pytest.FixtureRequest, make_files: Make, make_mariadb: Make
) -> tuple[str, str]:
    both = make_files(), make_mariadb()
    return both if request.param == "files to mariadb" else (both[1], both[0])


def test_rows_come_back_in_another_database(urls: tuple[str, str]) -> None:
    source = Store.open(urls[0])
    fill(source)
    with source.read() as reading:
        copy_tables(reading, urls[1], SERVER)
    target = Store.open(urls[1])
    with source.read() as one, target.read() as other:
        assert rows_in(other) == rows_in(one) != []
        assert read_revision(other, SERVER) == read_revision(one, SERVER)
    source.close()
    target.close()


def test_tables_that_are_dropped_are_all_gone(url: str) -> None:
    store = Store.open(url)
    with store.write() as connection:
        drop_tables(connection, SERVER)
    with store.read() as connection:
        assert inspect(connection).get_table_names() == []
    store.close()


def test_database_without_tables_has_no_revision(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    with engine.connect() as connection:
        assert read_revision(connection, SERVER) == ""
    engine.dispose()
