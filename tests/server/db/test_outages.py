"""Databases that are away for a moment: one mapping, and a client that waits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import exc

from stoilo.client import mapping
from stoilo.client.connection import Connection, connect
from stoilo.client.session import Journal
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import InternalError, StoiloError, UnreachableError
from stoilo.core.rate_limit import Backoff
from stoilo.server.api import service
from stoilo.server.db import store
from stoilo.server.db.store import (
    AWAY,
    DatabaseAwayError,
    Store,
    database_error,
    is_passing,
)
from stoilo.server.engines.embedded.db.database import Database
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake
from tests.support.mariadb import MariaServer

FULL = InternalError("STO-R030", "full")


def raised(cause: Exception, *, invalidated: bool = False) -> exc.OperationalError:
    found = exc.OperationalError("SELECT 1", None, cause)
    found.connection_invalidated = invalidated
    return found


def of_sqlite(code: int) -> exc.OperationalError:
    cause = sqlite3.OperationalError("no")
    cause.sqlite_errorcode = code  # type: ignore[misc]  # as SQLite sets it
    return raised(cause)


def of_mariadb(number: int) -> exc.OperationalError:
    return raised(pymysql.OperationalError(number, "no"))


PASSING = {
    "busy": of_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT),
    "locked": of_sqlite(sqlite3.SQLITE_LOCKED),
    "refused": of_mariadb(2003),
    "gone away": of_mariadb(2006),
    "lost": of_mariadb(2013),
    "shutting down": of_mariadb(1053),
    "killed": of_mariadb(1927),
    "too many connections": of_mariadb(1040),
    "read-only": of_mariadb(1290),
    "deadlock": of_mariadb(1213),
    "lock wait": of_mariadb(1205),
    "disconnected": raised(pymysql.InterfaceError(0, ""), invalidated=True),
    "no connection came free": exc.TimeoutError("pool"),
    "used again": exc.PendingRollbackError("was lost"),
}
LASTING = {
    "full": of_sqlite(sqlite3.SQLITE_FULL),
    "no database": of_sqlite(sqlite3.SQLITE_NOTADB),
    "denied": of_mariadb(1045),
    "disk full": of_mariadb(1021),
    "no such table": of_mariadb(1146),
    "nothing said": raised(pymysql.OperationalError()),
    "our own": exc.ArgumentError("no such column"),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_what_passes_is_told_as_away(error: exc.SQLAlchemyError) -> None:
    told = database_error(error, FULL)
    assert (told.code, type(told)) == (AWAY, DatabaseAwayError)
    assert told.hint
    assert "SELECT" not in str(told)


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_what_lasts_keeps_its_code(error: exc.SQLAlchemyError) -> None:
    assert not is_passing(error)
    assert database_error(error, FULL) is FULL


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def write(door: Store | Database) -> None:
    with door.write() as connection:
        connection.exec_driver_sql("SELECT 1").scalar()


def test_engines_lock_that_another_process_holds_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0)
    door = Database(f"sqlite:///{tmp_path / 'e.sqlite'}")
    door.upgrade()
    with locked(tmp_path / "e.sqlite"), pytest.raises(DatabaseAwayError):
        write(door)
    write(door)
    door.close()


def test_servers_lock_that_another_process_holds_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0)
    door = Store.open(f"sqlite:///{tmp_path / 's.sqlite'}")
    with locked(tmp_path / "s.sqlite"), pytest.raises(DatabaseAwayError):
        write(door)
    write(door)
    door.close()


@pytest.mark.parametrize("kind", [Store, Database])
def test_mariadb_that_is_stopped_is_away(kind: type[Store | Database]) -> None:
    with MariaServer() as server:
        url = server.create_database()
        door = Store.open(url) if kind is Store else Database(url)
        if isinstance(door, Database):
            door.upgrade()
        write(door)
        server.kill()
        for work in (door.write, door.read):
            with pytest.raises(DatabaseAwayError), work() as connection:
                connection.exec_driver_sql("SELECT 1")
        server.start()
        write(door)
        door.close()


# -- a client that waits meanwhile ----------------------------------------------------

ITEMS = 3000
SOME = 3
"""Tasks that are there before the database goes."""


def add_one(kw: dict[str, Any]) -> Any:
    return kw["x"] + 1


def answers(request: Any, _service: FakeTaskService) -> Outcome:
    found = decode(request.arguments)
    if not request.map_items:
        return Outcome.of(found["x"] + 1)
    return Outcome(items=tuple(Outcome.of(item["x"] + 1) for item in found))


class StoredTasks(FakeTaskService):
    """Every call asks a real database first, and ends as the real service lets it end."""

    def __init__(self, door: Store | Database) -> None:
        super().__init__(answers, polls=40)
        self.door = door
        self.busy = asyncio.Event()
        self.away = asyncio.Event()

    async def _enter(self, method: str, context: Any) -> None:
        await super()._enter(method, context)
        if len(self.tasks) > SOME:
            self.busy.set()
        await service.answer(context, self._ask(), 60)

    async def _ask(self) -> None:
        try:
            await asyncio.to_thread(write, self.door)
        except StoiloError:
            self.away.set()
            raise


@asynccontextmanager
async def waiting(door: Store | Database) -> AsyncIterator[tuple[Connection, Any]]:
    fake = StoredTasks(door)
    async with (
        serve_fake(fake) as address,
        connect(address, journal=Journal(None)) as conn,
    ):
        yield conn, fake


async def outlast(
    door: Store | Database, stop: Callable[[], None], start: Callable[[], None]
) -> None:
    """Take the database away under a waiting map and a waiting result."""
    async with waiting(door) as (conn, fake):
        run = conn.map(add_one, [{"x": x} for x in range(ITEMS)], chunk_items=100)
        single = await conn.create_task(add_one, {"x": 41}).submit()
        work = asyncio.gather(run.results(300), single.result(300))
        await asyncio.wait_for(fake.busy.wait(), 60)
        await asyncio.to_thread(stop)
        await asyncio.wait_for(fake.away.wait(), 60)
        other = asyncio.gather(single.status(), conn.create_task(add_one).submit())
        await asyncio.sleep(0.3)
        await asyncio.to_thread(start)
        (results, alone), _ = await asyncio.gather(work, other)
        assert results == [x + 1 for x in range(ITEMS)]
        assert alone == 42
        assert len(fake.tasks) == run.progress.tasks + 2  # none was made twice
        assert not await single.cancel()


@pytest.mark.parametrize("kind", [Store, Database])
def test_map_and_result_outlast_a_killed_mariadb(kind: type[Store | Database]) -> None:
    with MariaServer() as server:
        url = server.create_database()
        door = Store.open(url) if kind is Store else Database(url)
        asyncio.run(outlast(door, server.kill, server.start))
        door.close()


def test_map_and_result_outlast_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0)
    path = tmp_path / "e.sqlite"
    door = Database(f"sqlite:///{path}")
    door.upgrade()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    asyncio.run(
        outlast(
            door,
            lambda: other.execute("BEGIN EXCLUSIVE") and None,
            lambda: other.execute("ROLLBACK") and None,
        )
    )
    other.close()
    door.close()


def test_without_the_mapping_they_end_in_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: the code reaches gRPC as any other failure of the server."""
    monkeypatch.setattr(service, "STATUS_BY_CODE", {})
    with MariaServer() as server:
        door = Database(server.create_database())
        with pytest.raises(InternalError, match=AWAY):
            asyncio.run(outlast(door, server.kill, server.start))
        door.close()


MANY = 12


class RefusingTasks(FakeTaskService):
    """Takes one task a call; is away after the first, for longer than their patience."""

    async def CreateTask(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's
        if self.tasks and self.calls["CreateTask"] < MANY:
            self.calls["CreateTask"] += 1
            await service.fail(context, DatabaseAwayError())
        return await super().CreateTask(request, context)


async def submit_in_two_parts(fake: FakeTaskService) -> list[Any]:
    async with (
        serve_fake(fake) as address,
        connect(address, journal=Journal(None), patience=0.1) as conn,
    ):
        return await conn.map(add_one, [{"x": 1}, {"x": 2}], chunk_items=1)


def test_map_that_has_begun_waits_longer_than_a_submission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mapping, "QUOTA", lambda: Backoff(0.01, 0.01))
    fake = RefusingTasks(answers, polls=0, is_old=True)
    assert asyncio.run(submit_in_two_parts(fake)) == [2, 3]
    assert fake.calls["CreateTask"] >= MANY


def test_map_of_which_nothing_was_taken_is_told() -> None:
    fake = RefusingTasks(answers, polls=0, is_old=True)
    fake.tasks["other"] = None  # type: ignore[assignment]  # refuses from the first on
    with pytest.raises(UnreachableError, match=AWAY):
        asyncio.run(submit_in_two_parts(fake))
