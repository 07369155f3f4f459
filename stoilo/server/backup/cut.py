"""One moment of all databases: what a crash at that moment would have left, no worse.

The server is made to survive a crash between any two of its steps, so a cut through all
databases at one moment is enough for everything to fit: tasks to workunits, both to the
log, the log to its head. All write locks are taken together, readers with a snapshot of
their own are opened, the locks are given back; copying happens from the snapshots while
the server goes on. Locks are only tried: where one is taken all are let go, so that
nobody who holds one and wants another can wait for us in a circle.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.db.mariadb import open_mariadb, write_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection


PATIENCE_S: Final = 60.0
"""How long the locks are tried for, s."""

_TRY_S: Final = 0.05
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


@dataclass(frozen=True, slots=True)
class Cut:
    """Snapshots of one moment.

    Attributes:
        files: SQLite databases by path, each in a read transaction.
        tables: MariaDB databases by branch, each in a read transaction.
        taken_at: the moment, s since 1970.
    """

    files: Mapping[Path, sqlite3.Connection]
    tables: Mapping[str, Connection]
    taken_at: int


@contextlib.contextmanager
def open_cut(
    files: Sequence[Path],
    urls: Mapping[str, str],
    meanwhile: Callable[[], None],
    patience_s: float = PATIENCE_S,
) -> Iterator[Cut]:
    """Yield a cut; `meanwhile` runs while nobody can write, and must be quick.

    Args:
        files: SQLite databases.
        urls: MariaDB databases by the branch whose writers take turns there.
        meanwhile: reads what belongs to the same moment.
        patience_s: how long to try, s.

    Raises:
        InternalError: ``STO-B069`` the server wrote all the time.
    """
    end = time.monotonic() + patience_s
    with contextlib.ExitStack() as snapshots:
        while True:
            try:
                with contextlib.ExitStack() as locks:
                    _lock(locks, files, urls)
                    cut = _snapshot(snapshots, files, urls)
                    meanwhile()
                break
            except (sqlite3.OperationalError, StoiloError, SQLAlchemyError) as error:
                snapshots.close()
                if not _is_taken(error) or time.monotonic() > end:
                    raise _no_cut(error) from error
                time.sleep(random.uniform(0.01, 0.1))  # noqa: S311 - out of step
        yield cut


def _lock(
    stack: contextlib.ExitStack, files: Sequence[Path], urls: Mapping[str, str]
) -> None:
    for path in files:
        connection = stack.enter_context(contextlib.closing(_open(path)))
        connection.execute("BEGIN IMMEDIATE")
    for branch, url in urls.items():
        engine = open_mariadb(url)
        stack.callback(engine.dispose)
        stack.enter_context(write_turn(engine, branch, wait_s=1))


def _snapshot(
    stack: contextlib.ExitStack, files: Sequence[Path], urls: Mapping[str, str]
) -> Cut:
    readers: dict[Path, sqlite3.Connection] = {}
    for path in files:
        readers[path] = stack.enter_context(contextlib.closing(_open(path)))
        readers[path].execute("BEGIN")
        readers[path].execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    tables: dict[str, Connection] = {}
    for branch, url in urls.items():
        engine = open_mariadb(url)
        stack.callback(engine.dispose)
        tables[branch] = stack.enter_context(engine.connect())
        tables[branch].exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return Cut(readers, tables, int(time.time()))


def _open(path: Path) -> sqlite3.Connection:
    """Open a database that exists; its journal stays as it is."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_TRY_S,
        isolation_level=None,
    )


def _is_taken(error: Exception) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
    return isinstance(error, StoiloError) and error.code == "STO-R111"


def _no_cut(error: Exception) -> StoiloError:
    if isinstance(error, StoiloError) and error.code != "STO-R111":
        return error
    return InternalError(
        "STO-B069",
        f"no moment at which all databases rest ({type(error).__name__})",
        hint="try again; a migration or another backup may hold one of them",
    )
