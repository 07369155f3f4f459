"""A whole project whose databases go away for a while under a waiting researcher."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from stoilo.client.session import Journal
from stoilo.client.sync import SyncConnection, connect_sync
from stoilo.server.db.store import LOCK_WAIT_S
from stoilo.testing.deployment import Deployment
from tests.support.mariadb import MariaServer

pytestmark = pytest.mark.slow
ITEMS = 240
PATIENCE_S = 120.0
DATABASES = ("server.sqlite", "engine/engine.sqlite", "audit/log.sqlite")


def add_one(kw: dict[str, Any]) -> Any:
    return kw["x"] + 1


@contextmanager
def researcher(deployment: Deployment) -> Iterator[SyncConnection]:
    assert deployment.line is not None
    with connect_sync(deployment.line.connection, journal=Journal(None)) as conn:
        yield conn


def outlast(conn: SyncConnection, blink: Callable[[], None]) -> None:
    """Wait for a map and a result in another thread while `blink` runs in this one."""
    single = conn.create_task(add_one, {"x": 41}).submit()
    run = conn.map(add_one, [{"x": x} for x in range(ITEMS)], chunk_items=20)
    run.results(timeout=0.5)
    with ThreadPoolExecutor() as pool:
        results = pool.submit(run.results, PATIENCE_S)
        alone = pool.submit(single.result, PATIENCE_S)
        blink()  # a MariaDB ends with the thread that started it
        assert results.result() == [x + 1 for x in range(ITEMS)]
        assert alone.result() == 42


def assert_each_ended_once(url: str, count: int, engine: str = "") -> None:
    """No task is lost, and none was finished, logged or handed over twice."""

    def ask(place: str, query: str) -> list[tuple[object, ...]]:
        found = create_engine(place)
        with found.connect() as connection:
            rows = [tuple(row) for row in connection.execute(text(query))]
        found.dispose()
        return rows

    states = ask(url, "SELECT state, COUNT(*) FROM task GROUP BY state")
    assert states == [("succeeded", count)]
    outcomes = "SELECT COUNT(*) FROM event WHERE kind = 'outcome'"
    assert ask(url, outcomes) == [(count,)]
    made = "SELECT COUNT(*), COUNT(DISTINCT name) FROM engine_workunit"
    assert ask(engine or url, made) == [(count, count)]
    untold = "SELECT COUNT(*) FROM engine_workunit WHERE tell_at IS NOT NULL"
    assert ask(engine or url, untold) == [(0,)]


def test_map_outlasts_a_mariadb_that_is_killed_and_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with MariaServer() as database:
        url = database.create_database()
        data.mkdir()
        settings = data / "stoilo.toml"
        settings.write_text(f'database = "{url}"\n')
        settings.chmod(0o600)

        def blink() -> None:
            for stop in (database.kill, database.stop):  # as a lost machine; in order
                stop()
                time.sleep(3)
                database.start()
                time.sleep(1)

        with Deployment(data, volunteers=2) as up, researcher(up) as conn:
            outlast(conn, blink)
        assert_each_ended_once(url, 1 + ITEMS // 20)


def test_map_outlasts_files_that_another_process_locks(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def blink() -> None:
        for name in DATABASES:
            with closing(sqlite3.connect(data / name, isolation_level=None)) as other:
                other.execute("PRAGMA busy_timeout = 60000")
                other.execute("BEGIN EXCLUSIVE")
                time.sleep(LOCK_WAIT_S + 3)  # longer than any writer waits
                other.execute("ROLLBACK")

    with Deployment(data, volunteers=2) as up, researcher(up) as conn:
        outlast(conn, blink)
    engine = f"sqlite:///{data / 'engine' / 'engine.sqlite'}"
    assert_each_ended_once(
        f"sqlite:///{data / 'server.sqlite'}", 1 + ITEMS // 20, engine
    )
