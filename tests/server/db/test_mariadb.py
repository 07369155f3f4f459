"""MariaDB gives what `Database.write` and `Database.read` promise on SQLite."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, insert, select, update

from stoilo.core.errors import InternalError
from stoilo.server.db.mariadb import is_mariadb, open_mariadb, write_turn
from stoilo.server.db.store import Store
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from tests.support.mariadb import MariaServer

ROW = schema.settings.c.name == "count"


@pytest.fixture
def url(mariadb: MariaServer) -> str:
    return mariadb.create_database()


@pytest.fixture
def databases(url: str) -> Iterator[tuple[Database, Database]]:
    """Two doors to one database, as two processes have them; a count is 0."""
    found = Database(url), Database(url)
    found[0].upgrade()
    with found[0].write() as connection:
        connection.execute(insert(schema.settings).values(name="count", value="0"))
    yield found
    for one in found:
        one.close()


def read_count(connection: Connection) -> int:
    return int(connection.scalar(select(schema.settings.c.value).where(ROW)) or 0)


def write_count(connection: Connection, count: int) -> None:
    connection.execute(update(schema.settings).where(ROW).values(value=str(count)))


def count_up(database: Database, times: int) -> None:
    for _ in range(times):
        with database.write() as connection:
            write_count(connection, read_count(connection) + 1)


def test_no_increment_of_writers_at_two_doors_is_lost(
    databases: tuple[Database, Database],
) -> None:
    threads = [
        threading.Thread(target=count_up, args=(databases[number % 2], 25))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with databases[0].read() as connection:
        assert read_count(connection) == 100


def test_without_turns_an_increment_is_lost(
    databases: tuple[Database, Database], url: str
) -> None:
    """The control: plain transactions, one inside the other."""
    engine = open_mariadb(url).execution_options(isolation_level="READ COMMITTED")
    with engine.begin() as first:
        seen = read_count(first)
        with engine.begin() as second:
            write_count(second, read_count(second) + 1)
        write_count(first, seen + 1)
    engine.dispose()
    with databases[0].read() as connection:
        assert read_count(connection) == 1  # of two


def test_writer_waits_for_the_writer_before(
    databases: tuple[Database, Database],
) -> None:
    done = threading.Event()

    def second() -> None:
        count_up(databases[1], 1)
        done.set()

    thread = threading.Thread(target=second)
    with databases[0].write() as connection:
        thread.start()
        assert not done.wait(0.3)
        write_count(connection, 10)
    thread.join()
    with databases[0].read() as connection:
        assert read_count(connection) == 11


def test_writer_that_waits_too_long_is_told(
    databases: tuple[Database, Database], url: str
) -> None:
    engine = open_mariadb(url)
    with (
        databases[0].write(),
        pytest.raises(InternalError, match="STO-R112"),
        write_turn(engine, "engine", wait_s=0),
    ):
        pass
    engine.dispose()


def test_turns_of_other_tables_and_other_databases_are_others(
    databases: tuple[Database, Database], url: str, mariadb: MariaServer
) -> None:
    for place, name in ((url, "server"), (mariadb.create_database(), "engine")):
        engine = open_mariadb(place)
        with databases[0].write(), write_turn(engine, name, wait_s=0) as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        engine.dispose()


def test_failure_stores_nothing_and_ends_the_turn(
    databases: tuple[Database, Database],
) -> None:
    def half() -> None:
        with databases[0].write() as connection:
            write_count(connection, 5)
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="middle"):
        half()
    count_up(databases[1], 1)
    with databases[0].read() as connection:
        assert read_count(connection) == 1


def test_reader_sees_one_state(databases: tuple[Database, Database]) -> None:
    with databases[0].read() as connection:
        assert read_count(connection) == 0
        count_up(databases[1], 1)
        assert read_count(connection) == 0
    with databases[0].read() as connection:
        assert read_count(connection) == 1


def test_session_that_is_killed_stores_nothing_and_ends_the_turn(
    databases: tuple[Database, Database], url: str
) -> None:
    def cut() -> None:
        with databases[0].write() as connection:
            write_count(connection, 5)
            session = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar()
            other = create_engine(url)
            with other.connect() as killer:
                killer.exec_driver_sql(f"KILL {session}")
            other.dispose()
            write_count(connection, 6)

    with pytest.raises(InternalError, match="STO-R112"):
        cut()
    count_up(databases[1], 1)
    with databases[0].read() as connection:
        assert read_count(connection) == 1


def test_commit_survives_a_killed_server_and_doors_open_again() -> None:
    with MariaServer() as server:
        database = Database(server.create_database())
        database.upgrade()
        with database.write() as connection:
            connection.execute(insert(schema.settings).values(name="count", value="7"))
        server.kill()
        server.start()
        with database.read() as connection:
            assert read_count(connection) == 7
        count_up(database, 1)
        database.close()


@pytest.mark.parametrize(
    "option", ["--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=16M"]
)
def test_server_whose_settings_lose_data_is_refused(option: str) -> None:
    with MariaServer(option) as server:
        url = server.create_database()
        database = Database(url)
        with pytest.raises(InternalError, match="STO-R110"):
            database.upgrade()
        with pytest.raises(InternalError, match="STO-R110"):
            Store.open(url)
        database.close()


def test_text_that_is_too_long_is_refused_and_not_cut(
    databases: tuple[Database, Database],
) -> None:
    values = {"name": "n" * 65, "value": ""}
    with (
        pytest.raises(InternalError, match="STO-R030"),
        databases[0].write() as connection,
    ):
        connection.execute(insert(schema.settings).values(values))


def test_number_keeps_its_53_bits(databases: tuple[Database, Database]) -> None:
    exact = 123_456_789_012_345.0
    with databases[0].write() as connection:
        kind = schema.workunits.c.fpops_est.type.compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"CREATE TEMPORARY TABLE t (x {kind})")
        connection.exec_driver_sql("INSERT INTO t VALUES (%s)", (exact,))
        assert connection.exec_driver_sql("SELECT x FROM t").scalar() == exact


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("sqlite:///x", False),
        ("mariadb+pymysql://u:p@host/db", True),
        ("mysql+pymysql://u:p@host/db", True),
    ],
)
def test_kind_of_database_is_read_from_the_url(url: str, wanted: bool) -> None:
    assert is_mariadb(url) is wanted
