"""An engine's database: short write transactions, snapshot reads, column types.

On SQLite a commit is durable (WAL, ``synchronous=FULL``) and every write transaction
takes the write lock at its start, so that a decision and what it rests on cannot drift
apart. On MariaDB `stoilo.server.db.mariadb` sees to the same.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Float, Integer, String, create_engine, event
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError
from stoilo.server.db.mariadb import (
    PACKET_BYTES,
    check_settings,
    is_mariadb,
    open_mariadb,
    write_turn,
)
from stoilo.server.db.store import CACHE_KIB, CHECKPOINT_PAGES, database_error, upgrade
from stoilo.server.migrations import Branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

LOCK_WAIT_S = 30
# Connections that stay open when nobody reads; each holds files and some memory
READERS_KEPT = 24
_READ = "stoilo_read"


def is_writing(connection: Connection) -> bool:
    """Say whether a connection is inside a write transaction."""
    return not connection.get_execution_options().get(_READ, False)


class EngineDatabase:
    """An engine's database behind `url` (SQLAlchemy form), with the tables of `branch`.

    Args:
        url: in SQLAlchemy's form.
        branch: the tables.
        packet_bytes: the longest statement that a MariaDB must take.
    """

    def __init__(
        self, url: str, branch: Branch, packet_bytes: int = PACKET_BYTES
    ) -> None:
        self._packet_bytes = packet_bytes
        self.url = url
        self._branch = branch
        self._mariadb = is_mariadb(url)
        self._engine, self._writing = _open(url)
        self._writer = threading.Lock()

    def upgrade(self) -> None:
        """Bring the tables to this version's revision, or raise ``STO-E003``."""
        try:
            if self._mariadb:
                check_settings(self._engine, self._packet_bytes)
            upgrade(self.url, self._branch)
        except SQLAlchemyError as error:
            raise _refused(error) from error

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction, committed durably at the end.

        Raises:
            InternalError: ``STO-E003`` when the database refuses, ``STO-R112`` when it is
                away for a moment; nothing is stored.
        """
        try:
            with self._writer, self._begin_writing() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise _refused(error) from error

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent state.

        Raises:
            InternalError: ``STO-E003``, ``STO-R112``.
        """
        try:
            with self._engine.connect() as connection:
                yield connection.execution_options(**{_READ: True})
        except SQLAlchemyError as error:
            raise _refused(error) from error

    def _begin_writing(self) -> contextlib.AbstractContextManager[Connection]:
        if self._mariadb:
            return write_turn(self._writing, self._branch.name)
        return self._writing.begin()

    def close(self) -> None:
        """Close every connection."""
        self._writing.dispose()
        self._engine.dispose()


def _open(url: str) -> tuple[Engine, Engine]:
    if is_mariadb(url):
        engine = open_mariadb(url)
        return engine, engine
    reading: Engine = create_engine(
        url,
        pool_pre_ping=False,
        pool_size=READERS_KEPT,
        max_overflow=-1,  # threads are bounded: no reader waits for another's connection
    )
    writing: Engine = create_engine(url, pool_size=1, max_overflow=0)
    event.listen(writing, "connect", _prepare_writer)
    for engine in (reading, writing):
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return reading, writing


def _refused(error: SQLAlchemyError) -> InternalError:
    """Return our error for a database's; only the kind is told, never the SQL."""
    kind = type(error).__name__
    lasting = InternalError("STO-E003", f"the engine's database refused ({kind})")
    return database_error(error, lasting)


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA temp_store = MEMORY")
    cursor.close()


def _prepare_writer(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Begin for real; a writer takes the write lock before it reads."""
    read_only = connection.get_execution_options().get(_READ, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


APP_CHARS: Final = 32
NAME_CHARS: Final = 160
# SQLite numbers rows by itself only for INTEGER keys; MariaDB shall have 64 bits.
Key = BigInteger().with_variant(Integer(), "sqlite")
# Names compare byte by byte everywhere; MariaDB's default collation would fold case.
Name = String(NAME_CHARS).with_variant(
    mysql.VARCHAR(NAME_CHARS, charset="ascii", collation="ascii_bin"),
    "mysql",
    "mariadb",
)
# MariaDB's FLOAT has 24 bits.
Real = Float().with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")
