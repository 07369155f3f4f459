"""The project's database: its address, our tables beside BOINC's, and who owns the project.

Two servers would deliver each other's outcomes, each to an assimilator that knows nothing
of them. So a lock keeps a second one out while the first runs (it is the kernel's, so that
it ends with the process, however that ends), and the owner's name while it does not.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError, UsageError
from stoilo.server.db.store import cause_of
from stoilo.server.engines.database import EngineDatabase
from stoilo.server.engines.stock.project import tables
from stoilo.server.engines.stock.project.tables import metadata
from stoilo.server.migrations import Branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection


# Less than MariaDB's own default: no file of ours lies in these tables.
PACKET_BYTES: Final = 4 * 1024 * 1024

STOCK = Branch("stock", "stoilo_version", metadata, "stock0001")


class Database(EngineDatabase):
    """The project's database behind `url` (SQLAlchemy form)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, STOCK, PACKET_BYTES)


@contextmanager
def open_database(url: str, what: str) -> Iterator[Connection]:
    """Yield a transaction in a project's database, for one command.

    Raises:
        InternalError: ``STO-B025``: it does not answer; nothing has changed.
    """
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise InternalError("STO-B025", f"{what}: {cause_of(error)}") from error
    finally:
        engine.dispose()


def is_maria(connection: Connection) -> bool:
    """Whether it is MariaDB; tests play a project in SQLite."""
    return connection.dialect.name in {"mysql", "mariadb"}


def join_cache_level(connection: Connection) -> int:
    """Return MariaDB's setting, 0 on any other database."""
    if not is_maria(connection):
        return 0
    query = "SELECT @@GLOBAL.join_cache_level"
    return int(connection.exec_driver_sql(query).scalar_one())


class Settings:
    """Values by name; each method raises ``STO-R030`` when the database refuses."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> str:
        """Return a value, empty where there is none."""
        table = tables.settings
        with self._database.read() as connection:
            found = connection.scalar(select(table.c.value).where(table.c.name == name))
        return str(found or "")

    def write(self, name: str, value: str, *, replace: bool = True) -> None:
        """Store a value durably; without `replace` one that is there stays."""
        table = tables.settings
        with self._database.write() as connection:
            known = connection.scalar(select(table.c.value).where(table.c.name == name))
            if known == value or (known is not None and not replace):
                return
            connection.execute(delete(table).where(table.c.name == name))
            connection.execute(insert(table).values(name=name, value=value))


def put_off(
    database: Database,
    rows: Sequence[int],  # our workunits
    now: int,  # s since 1970
    first_s: int,  # how long after the first time
    doublings: int,  # how often it waits twice as long as the time before
    *,
    ended: bool = False,  # whether they have ended; those of the other kind stay
) -> None:
    """Have what could not be done about workunits tried again, and others first."""
    table = tables.workunits
    which = table.c.outcome.is_not(None) if ended else table.c.outcome.is_(None)
    query = select(table.c.id, table.c.attempts).where(table.c.id.in_(rows), which)
    if not rows:
        return
    with database.write() as connection:
        for row, attempts in connection.execute(query).all():
            later = now + first_s * 2 ** min(attempts, doublings)
            mine = update(table).where(table.c.id == row)
            connection.execute(mine.values(retry_at=later, attempts=attempts + 1))


_LOCK: Final = "lock"
_OWNER: Final = "owner"
_FOLDER_MODE: Final = 0o750


class FolderLock:
    """A project's folder ``stoilo``, made if needed, held until `release`.

    Raises:
        InternalError: ``STO-B095`` when another server works on the project;
            ``STO-U006`` when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._number = -1
        try:
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            self._number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError):
                text = "another server works on this BOINC project"
                raise InternalError("STO-B095", text) from error
            text = f"the project's folder stoilo cannot be used (errno {error.errno})"
            raise InternalError("STO-U006", text) from error

    def release(self) -> None:
        """Let another server have the project; again: nothing."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


def owner_name(log_key: str) -> str:
    """Return the name of the server with an audit log's verifier key; empty without."""
    return hashlib.sha256(log_key.encode()).hexdigest() if log_key else ""


def claim_project(settings: Settings, owner: str) -> None:
    """Note whose project it is, at the first start.

    Args:
        settings: the project's.
        owner: names a server for good; empty: one that leaves no name.

    Raises:
        UsageError: ``STO-B095`` when it is another's.
    """
    known = settings.read(_OWNER)
    if known not in {"", owner}:
        raise UsageError(
            "STO-B095",
            "this BOINC project has tasks of another stoilo server",
            hint="give this one a project of its own",
        )
    if owner:
        settings.write(_OWNER, owner)


LOCAL: Final = "localhost"
# By which MariaDB's client library is told of another socket.
SOCKET_VARIABLE: Final = "MYSQL_UNIX_PORT"

SOCKETS: Final = (
    "/run/mysqld/mysqld.sock",  # Debian, and what is tried where none is there
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",  # noqa: S108 - where the library's own builds have it
)


def parse_host(text: str, own_name: str) -> tuple[str, int]:
    """Return what a ``db_host`` means on the machine of that name: host and TCP port.

    `LOCAL` is the database's unix socket, port 0 MariaDB's own. Never fails: as in C,
    digits that are no port are none.
    """
    if text in {"", own_name}:
        return LOCAL, 0
    name, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0  # noqa: PLR2004 - 65535
    return name or LOCAL, number


def find_socket(environment: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the path of the database's socket on this machine."""
    named = environment.get(SOCKET_VARIABLE, "")
    return named or next(filter(exists, SOCKETS), SOCKETS[0])
