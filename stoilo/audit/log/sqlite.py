"""How this log opens SQLite: WAL, flushed at every commit, or strictly read-only."""

from __future__ import annotations

import contextlib
import errno
import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from stoilo.core.errors import InternalError, TrustError, UnreachableError

_BUSY_S = 10.0
_INSERT_ROWS = 64
_NOT_READABLE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_FULL,
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
    connection.execute("PRAGMA temp_store = MEMORY")  # half a statement's way back
    return connection


@contextlib.contextmanager
def damaged(name: str, code: str = "STO-L049") -> Iterator[None]:
    """Turn SQLite's complaints about a file into TrustError `code`, or ``STO-L002``."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error_code(error) & 0xFF in _NOT_READABLE:
            raise UnreachableError(
                "STO-L002", f"the {name} cannot be read: {error}"
            ) from error
        raise TrustError(code, f"the {name} is damaged: {error}") from error
    except (UnicodeError, msgspec.MsgspecError) as error:
        raise TrustError(code, f"the {name} holds no text there") from error


def error_code(error: sqlite3.Error) -> int:
    """Return SQLite's extended code of an error; 0 when Python itself raised it."""
    return int(getattr(error, "sqlite_errorcode", 0))


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Commit what is done inside, or nothing of it."""
    # IMMEDIATE: a reader that wants to write later can find the lock taken, and must
    # then begin anew; who takes it first only waits.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def unflushed(connection: sqlite3.Connection) -> Iterator[None]:
    """Let commits inside wait for no flush: the next flushed one takes them along.

    Only for what can be derived again after a crash.
    """
    # The next flushed commit takes these along; a crash before it loses only them.
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def insert_rows(
    connection: sqlite3.Connection,  # within a transaction
    insert: str,  # our own words before ``VALUES``
    rows: Sequence[tuple[object, ...]],  # all of one length
    rest: str = "",  # our own words after the values
) -> None:
    """Insert many rows, some in each statement.

    Every step of a statement gives up the interpreter and has to ask for it again: with
    many threads around, that is most of what `executemany` costs.
    """
    for at in range(0, len(rows), _INSERT_ROWS):
        part = rows[at : at + _INSERT_ROWS]
        marks = ",".join([f"({','.join('?' * len(part[0]))})"] * len(part))
        query = f"{insert} VALUES {marks} {rest}"
        connection.execute(query, [*chain.from_iterable(part)])


Arguments = ParamSpec("Arguments")


Result = TypeVar("Result")


_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def with_our_errors(
    work: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    """Let `work` raise our errors where the machine fails it.

    Raises:
        InternalError: ``STO-R030`` disk full, ``STO-L040`` a database is locked,
            ``STO-L051`` anything else.
    """

    @functools.wraps(work)
    def run(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*values, **named)
        except (OSError, sqlite3.Error) as error:
            harmless = harmless_refusal(error)
            if harmless is not None:
                raise harmless from error
            raise InternalError(
                "STO-L051", f"the log's files cannot be used: {error}"
            ) from error

    return run


def harmless_refusal(error: Exception) -> InternalError | None:
    """Return our error for a failure that changed nothing; None: nothing is certain.

    A full disk, or a database that another process holds locked: the same step may be
    done again. After any other failure the page cache may lie.
    """
    if _is_disk_full(error):
        return InternalError(
            "STO-R030", "the log's disk is full; nothing was acknowledged"
        )
    cause = error.__cause__ if isinstance(error, UnreachableError) else error
    if isinstance(cause, sqlite3.Error) and error_code(cause) & 0xFF in _LOCKED:
        return InternalError(
            "STO-L040", "another process locks the log; nothing was acknowledged"
        )
    return None


def _is_disk_full(error: Exception) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        return error_code(error) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _DISK_FULL
