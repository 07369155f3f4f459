"""A cut is one moment: what is written to one database before another stays in order."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.backup.cut import open_cut

PAUSE_S = 0.001
COUNT = "SELECT COUNT(*) FROM step"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "cause.sqlite", tmp_path / "effect.sqlite"]
    for path in found:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE step (id INTEGER PRIMARY KEY)")
            connection.commit()
    return found


@pytest.fixture
def writer(files: list[Path]) -> Iterator[threading.Event]:
    """Write a step into the first database, then into the second, again and again."""
    stop = threading.Event()

    def work() -> None:
        with ExitStack() as stack:
            databases = [
                stack.enter_context(closing(sqlite3.connect(path, timeout=60)))
                for path in files
            ]
            for database in databases:
                database.execute("PRAGMA synchronous = OFF")  # a busy disk is no matter
            while not stop.wait(PAUSE_S):
                for database in databases:
                    database.execute("INSERT INTO step VALUES (NULL)")
                    database.commit()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(work)
        yield stop
        stop.set()
        writing.result()  # what ended it early fails the test


def counts(files: list[Path]) -> tuple[int, int]:
    with open_cut(files, {}, lambda: None) as cut:
        first, second = (cut.files[path] for path in files)
        cause = first.execute(COUNT).fetchone()[0]
        return cause, second.execute(COUNT).fetchone()[0]


@pytest.mark.usefixtures("writer")
def test_no_cut_falls_between_effect_and_cause(files: list[Path]) -> None:
    for _ in range(20):
        cause, effect = counts(files)
        assert cause - effect in {0, 1}


def test_without_locks_effect_may_come_before_its_cause(files: list[Path]) -> None:
    """The control: copied one after the other, with a step between the two."""
    with closing(sqlite3.connect(files[0])) as cause:
        before = cause.execute(COUNT).fetchone()[0]
    for path in files:
        with closing(sqlite3.connect(path)) as database:
            database.execute("INSERT INTO step VALUES (NULL)")
            database.commit()
    with closing(sqlite3.connect(files[1])) as effect:
        assert before - effect.execute(COUNT).fetchone()[0] == -1


def test_snapshot_stays_while_the_server_goes_on(files: list[Path]) -> None:
    with open_cut(files, {}, lambda: None) as cut:
        with closing(sqlite3.connect(files[0])) as database:
            database.execute("INSERT INTO step VALUES (NULL)")
            database.commit()
        assert cut.files[files[0]].execute(COUNT).fetchone()[0] == 0


def test_nobody_writes_meanwhile(files: list[Path]) -> None:
    def meanwhile() -> None:
        with (
            closing(sqlite3.connect(files[1], timeout=0)) as database,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            database.execute("INSERT INTO step VALUES (NULL)")

    with open_cut(files, {}, meanwhile):
        pass


def test_lock_that_is_never_free_ends_in_our_error(files: list[Path]) -> None:
    with closing(sqlite3.connect(files[1], isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(InternalError, match="STO-B069"),
            open_cut(files, {}, lambda: None, patience_s=0.2),
        ):
            pass
        with closing(sqlite3.connect(files[0], timeout=0)) as other:
            other.execute("INSERT INTO step VALUES (NULL)")  # nothing is left locked


def test_lock_that_becomes_free_is_waited_for(files: list[Path]) -> None:
    holder = sqlite3.connect(files[1], isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    released = threading.Event()

    def release() -> None:
        released.set()
        holder.close()

    timer = threading.Timer(0.3, release)
    timer.start()
    with open_cut(files, {}, lambda: None):
        assert released.is_set()
    timer.join()
