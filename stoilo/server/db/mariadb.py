"""MariaDB with the promises that our transactions rest on elsewhere by SQLite's nature.

- One writer at a time: a transaction that writes first takes a named lock of the server
  (``GET_LOCK``), gives it back after its commit, and so sees everything that was
  committed and nothing that changes beneath it: what ``BEGIN IMMEDIATE`` gives. Rows
  locked one by one (``FOR UPDATE``) or ``SERIALIZABLE`` would let two writers meet and
  one of them be thrown back, but what a writer does here is code that runs once, not a
  text that can be played again. The lock dies with its session, after the rollback.
- One state for readers: ``REPEATABLE READ``, InnoDB's snapshot at the first read.
- A commit that returned is on the disk, and no value is cut to fit: checked at the start,
  because these are settings of the server.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Dialect, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry


LOCK_WAIT_S: Final = 30  # how long a writer waits for the one before, s
PACKET_BYTES: Final = 64 * 1024 * 1024
"""The longest statement: a stored value of 16 MiB, each byte of it escaped, and more."""

_CONNECT_S: Final = 10
_NO_SERVER: Final = 2002  # the client library's number
_SESSION: Final = (
    f"SET SESSION sql_mode = 'TRADITIONAL', innodb_lock_wait_timeout = {LOCK_WAIT_S}"
)
_SETTINGS: Final = """SELECT @@innodb_flush_log_at_trx_commit AS flush,
 @@sync_binlog AS sync, @@log_bin AS binlog, @@max_allowed_packet AS packet,
 @@default_storage_engine AS engine"""


def is_mariadb(url: str) -> bool:
    """Whether an SQLAlchemy URL names a MariaDB."""
    return make_url(url).get_backend_name() in {"mariadb", "mysql"}


def open_mariadb(url: str) -> Engine:
    """Return an engine whose sessions have our settings; connects when first used."""
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ",
        pool_pre_ping=True,  # a server that was started anew is found again
        pool_size=16,
        connect_args={"init_command": _SESSION, "connect_timeout": _CONNECT_S},
    )
    event.listen(engine, "do_connect", _connect)
    return engine


def _connect(
    dialect: Dialect,
    _record: ConnectionPoolEntry,
    arguments: tuple[object, ...],
    options: dict[str, Any],
) -> DBAPIConnection | None:
    """Connect to a unix socket; None leaves it to the driver.

    PyMySQL leaves one that is refused open until the next garbage collection: a server
    whose database is away would run out of descriptors.
    """
    if "unix_socket" not in options or dialect.driver != "pymysql":
        return None
    driver: Any = dialect.loaded_dbapi
    made: Any = driver.connect(*arguments, **options, defer_connect=True)
    talk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        talk.settimeout(_CONNECT_S)
        talk.connect(options["unix_socket"])
    except OSError as error:
        talk.close()
        said = f"no MariaDB at {options['unix_socket']} (errno {error.errno})"
        raise driver.OperationalError(_NO_SERVER, said) from error
    made.connect(talk)
    return cast("DBAPIConnection", made)


def check_settings(engine: Engine, packet_bytes: int = PACKET_BYTES) -> None:
    """Refuse a server that loses commits or cannot hold our largest values.

    `packet_bytes` is the longest statement.

    Raises:
        InternalError: ``STO-R110``.
        SQLAlchemyError: the server cannot be asked.
    """
    with engine.connect() as connection:
        said = connection.exec_driver_sql(_SETTINGS).one()
    wrong = []
    if said.flush != 1:
        wrong.append("innodb_flush_log_at_trx_commit must be 1")
    if said.binlog and said.sync != 1:
        wrong.append("sync_binlog must be 1")
    if said.packet < packet_bytes:
        wrong.append(f"max_allowed_packet must be at least {packet_bytes}")
    if said.engine != "InnoDB":
        wrong.append("default_storage_engine must be InnoDB")
    if wrong:
        raise InternalError("STO-R110", f"this MariaDB is not safe: {', '.join(wrong)}")


@contextmanager
def write_turn(
    engine: Engine,  # of `open_mariadb`
    # of the tables that its writers share; other databases have turns of their own
    name: str,
    wait_s: int = LOCK_WAIT_S,  # how long to wait for the writer before, s
) -> Iterator[Connection]:
    """Yield a connection in a transaction that is the only writing one.

    Raises:
        SQLAlchemyError: the database refuses; nothing is stored.
        InternalError: ``STO-R112`` when another writer does not end.
    """
    lock = _lock_name(engine, name)
    with engine.connect() as connection:
        try:
            with connection.begin():
                _take(
                    connection, lock, wait_s
                )  # reads no table, so the snapshot comes after it
                yield connection
        finally:
            _give_back(connection, lock)


def _lock_name(engine: Engine, name: str) -> str:
    """Return a name (at most 64 characters) of one database's tables."""
    database = (engine.url.database or "").encode()
    return f"stoilo:{name}:{hashlib.sha256(database).hexdigest()[:32]}"


def _take(connection: Connection, lock: str, wait_s: int) -> None:
    query = "SELECT GET_LOCK(%s, %s)"
    if connection.exec_driver_sql(query, (lock, wait_s)).scalar() != 1:
        raise InternalError("STO-R112", "another writer holds the database")


def _give_back(connection: Connection, lock: str) -> None:
    """Release the lock; a session that cannot say so is ended, which releases it too."""
    if connection.invalidated:
        return
    try:
        connection.exec_driver_sql("SELECT RELEASE_LOCK(%s)", (lock,))
    except SQLAlchemyError:
        connection.invalidate()
