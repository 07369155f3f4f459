"""How this log opens SQLite: WAL, flushed at every commit, or strictly read-only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

from stoilo.core.errors import TrustError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["connect", "damaged", "sync_directory"]

_BUSY_S = 10.0
_NOT_READABLE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
    }
)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a database in autocommit mode, usable from any one thread at a time.

    Writers get WAL with ``synchronous=FULL``: a commit that returned was flushed.
    Readers change no byte of the data: beside a live writer (a ``-wal`` file exists)
    through SQLite's shared memory, else as an immutable file.
    """
    if read_only:
        live = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if live else "mode=ro&immutable=1"
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextlib.contextmanager
def damaged(name: str) -> Iterator[None]:
    """Turn SQLite's complaints about a file into ``STO-L049`` or ``STO-L002``."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _NOT_READABLE:
            raise UnreachableError(
                "STO-L002", f"the {name} cannot be read: {error}"
            ) from error
        raise TrustError("STO-L049", f"the {name} is damaged: {error}") from error


def sync_directory(path: Path) -> None:
    """Flush a directory, so that names made in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
