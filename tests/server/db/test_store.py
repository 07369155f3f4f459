from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import Dialect, func, inspect, select
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.schema import CreateTable

from stoilo.core.errors import InternalError
from stoilo.server.db import schema
from stoilo.server.db.store import Store, open_engine


def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db.sqlite'}"


def test_migrations_make_exactly_the_models_tables(url: str) -> None:
    store = Store.open(url)
    found = inspect(store.engine)
    tables = set(found.get_table_names()) - {"alembic_version"}
    assert tables == set(schema.METADATA.tables)
    for name, table in schema.METADATA.tables.items():
        columns = {column["name"] for column in found.get_columns(name)}
        assert columns == {column.name for column in table.columns}
    store.close()


@pytest.mark.parametrize("dialect", [mysql.dialect(), sqlite.dialect()])
def test_every_table_has_a_form_in_both_databases(dialect: Dialect) -> None:
    for table in schema.METADATA.sorted_tables:
        text = str(CreateTable(table).compile(dialect=dialect))
        assert table.name in text
    key = str(CreateTable(schema.task).compile(dialect=mysql.dialect()))
    assert "utf8mb4_bin" in key


def test_commit_is_synchronous_and_in_wal_mode(tmp_path: Path) -> None:
    with open_engine(sqlite_url(tmp_path)).connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def add_account(store: Store, name: str) -> None:
    with store.write() as connection:
        connection.execute(
            schema.account.insert(), {"name": name, "salt": "", "created_at": 1}
        )


def test_failed_transaction_leaves_nothing(url: str) -> None:
    store = Store.open(url)

    def half() -> None:
        with store.write() as connection:
            connection.execute(
                schema.account.insert(), {"name": "a", "salt": "", "created_at": 1}
            )
            connection.exec_driver_sql("SELECT * FROM nowhere")

    with pytest.raises(InternalError, match="STO-R030"):
        half()
    with store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.account)) == 0
    store.close()


def test_writers_of_many_threads_queue(url: str) -> None:
    store = Store.open(url)
    threads = [
        threading.Thread(target=add_account, args=(store, f"a{n}")) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.account)) == 16
    store.close()


def test_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    page = tmp_path / "db.sqlite"
    page.write_bytes(b"not a database" * 100)
    with pytest.raises(InternalError, match="STO-R030"):
        Store.open(sqlite_url(tmp_path))
    assert page.read_bytes() == b"not a database" * 100


def test_full_database_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = Store.open(sqlite_url(tmp_path))
    with store.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    store.engine.dispose()
    raw = store.engine.raw_connection()
    raw.close()

    def fill() -> None:
        with store.write() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
            connection.execute(
                schema.content.insert(), {"digest": "0" * 64, "data": b"x" * 10**6}
            )

    with pytest.raises(InternalError, match="full"):
        fill()
    with store.write() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    add_account(store, "later")
    store.close()
