"""The database behind one door: connections, transactions, migrations, and its failures.

SQLite runs in WAL mode with ``synchronous=FULL``: a commit that returned is on the disk
(I6). A full disk or a broken file ends in ``STO-R030``: somebody has to mend it. What
passes by itself (a MariaDB that is being started anew, a lock that another process holds)
ends in ``STO-R112``, which gRPC calls *unavailable*: callers ask again, threads of the
server leave everything as it is and go on by themselves. Never a traceback, and the last
committed state stays. MariaDB: see `stoilo.server.db.mariadb`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from stoilo.core.errors import InternalError
from stoilo.server.db.mariadb import (
    PACKET_BYTES,
    check_settings,
    is_mariadb,
    open_mariadb,
    write_turn,
)
from stoilo.server.db.schema import METADATA
from stoilo.server.migrations import Branch, migrate

AWAY: Final = "STO-R112"

_SQLITE_PASSING: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
)
"""Primary codes: another connection holds a lock."""

_MARIADB_PASSING: Final = frozenset(
    {
        # the driver's: it cannot connect, or the connection is lost
        *(2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2055),
        # too many connections, of all or of this account
        *(1040, 1203, 1226),
        # being shut down; a connection or a query ended by somebody, or by the network
        *(1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 1969, 4031),
        # another transaction: a lock, a deadlock, a row that has changed
        *(1020, 1205, 1213),
        # for a while it only reads: a backup, a replica that is being promoted
        *(1290, 1836),
    }
)
"""Numbers of errors, as MariaDB's documentation lists them."""


_SHOWN: Final = 160


class DatabaseAwayError(InternalError):
    """A database that does not answer just now (``STO-R112``); nothing is stored half."""

    def __init__(self) -> None:
        super().__init__(
            AWAY,
            "the server's database does not answer just now",
            hint="nothing is lost: the same call works when it is back, and clients "
            "repeat it by themselves",
        )


def is_passing(error: exc.SQLAlchemyError) -> bool:
    """Say whether the same work may succeed a moment later, without anybody's doing."""
    if isinstance(error, (exc.TimeoutError, exc.PendingRollbackError)):
        return True  # no connection came free; the one in use was lost before
    if not isinstance(error, exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE_PASSING
    number = cause.args[0] if cause is not None and cause.args else None
    return number in _MARIADB_PASSING


def cause_of(error: exc.SQLAlchemyError) -> str:
    """Return what the database itself said, one bounded line without our SQL."""
    said = str(getattr(error, "orig", None) or type(error).__name__)
    return " ".join(said.split())[:_SHOWN]


def database_error(error: exc.SQLAlchemyError, lasting: InternalError) -> InternalError:
    """Return our error for a database's: `lasting` unless it passes by itself."""
    return DatabaseAwayError() if is_passing(error) else lasting


SERVER = Branch("server", "alembic_version", METADATA, "server0003")

CACHE_KIB = 32_768  # what the one writing connection may keep of the database in memory
LOCK_WAIT_S = 30.0  # how long a writer waits for a lock of another process, s
# 16 MiB of log before it goes into the database: a page written often goes once
CHECKPOINT_PAGES = 4096
# Connections that stay open when nobody reads; each holds files and some memory
READERS_KEPT = 24
_WRITE = "stoilo_write"


def open_engine(url: str) -> Engine:
    """Return an SQLAlchemy engine with our durability settings for `url`."""
    if is_mariadb(url):
        return open_mariadb(url)
    # Threads are bounded: no reader waits for another's connection.
    return _open_sqlite(url, pool_size=READERS_KEPT, max_overflow=-1)


def _open_writer(url: str) -> Engine:
    """Return an engine with one connection, whose pages stay cached between commits.

    Connections that take turns at writing find each other's pages new every time.
    """
    if is_mariadb(url):
        return open_mariadb(url)
    engine = _open_sqlite(url, pool_size=1, max_overflow=0)
    event.listen(engine, "connect", _set_writers_pragmas)
    return engine


def _open_sqlite(url: str, **pool: int) -> Engine:
    settings = {"timeout": LOCK_WAIT_S, "isolation_level": None}
    engine = create_engine(url, poolclass=QueuePool, connect_args=settings, **pool)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _set_writers_pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI
    for pragma in (
        f"cache_size=-{CACHE_KIB}",
        f"wal_autocheckpoint={CHECKPOINT_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _set_pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "temp_store=MEMORY",  # what takes back half a statement is no file
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def is_writing(connection: Connection) -> bool:
    """Say whether a connection is inside a write transaction."""
    return bool(connection.get_execution_options().get(_WRITE))


def _begin(connection: Connection) -> None:
    """Begin for real; a writer takes the write lock before it reads."""
    # So a decision and what it rests on cannot drift apart.
    writing = is_writing(connection)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def upgrade(url: str, branch: Branch, revision: str = "") -> None:
    """Bring a branch's tables behind `url` to a revision; see `migrate`.

    Raises:
        SQLAlchemyError: the database refuses.
    """
    engine = open_engine(url)  # its own: the upgrade may change what others have cached
    try:
        with begin_writing(engine, branch) as connection:
            migrate(connection, branch, revision)
    finally:
        engine.dispose()


@contextmanager
def begin_writing(engine: Engine, branch: Branch) -> Iterator[Connection]:
    """Yield a connection in a transaction that alone writes a branch's tables."""
    if engine.dialect.name != "sqlite":
        with write_turn(engine, branch.name) as connection:
            yield connection.execution_options(**{_WRITE: True})
        return
    with engine.connect() as connection:
        writing = connection.execution_options(**{_WRITE: True})
        with writing.begin():
            yield writing


def storage_error(error: SQLAlchemyError) -> InternalError:
    """Return what a caller learns of a database failure: no paths, no SQL."""
    reason = str(getattr(error, "orig", error)).splitlines()[0][:120]
    lasting = InternalError(
        "STO-R030",
        f"the server cannot store or read anything now: {reason}",
        hint="nothing was stored half; retry when the operator has made room",
    )
    return database_error(error, lasting)


class Store:
    """Transactions on one database; writers of this process queue for one lock.

    Thread-safe. `write` blocks until the commit is durable. Where the database refuses, all
    raise what `refused` makes of its error; nothing is stored then.
    """

    def __init__(
        self,
        url: str,  # in SQLAlchemy's form
        branch: Branch = SERVER,  # the tables
        refused: Callable[[SQLAlchemyError], InternalError] = storage_error,
        packet_bytes: int = PACKET_BYTES,  # the longest statement that a MariaDB must take
    ) -> None:
        self.url = url
        self.engine = open_engine(url)
        self._writer = _open_writer(url)
        self._branch = branch
        self._refused = refused
        self._packet_bytes = packet_bytes
        self._writers = threading.Lock()

    @classmethod
    def open(cls, url: str) -> Store:
        """Upgrade the schema and open the store."""
        store = cls(url)
        store.upgrade()
        return store

    def upgrade(self) -> None:
        """Bring the tables to this version's revision.

        Raises ``STO-R110`` for a database whose settings lose data.
        """
        try:
            if is_mariadb(self.url):
                check_settings(self.engine, self._packet_bytes)
            upgrade(self.url, self._branch)
        except SQLAlchemyError as error:
            raise self._refused(error) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one consistent state."""
        try:
            with self.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._refused(error) from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection; commits durably at the end, rolls back on any error."""
        try:
            with (
                self._writers,
                begin_writing(self._writer, self._branch) as connection,
            ):
                yield connection
        except SQLAlchemyError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Close every pooled connection."""
        self._writer.dispose()
        self.engine.dispose()
