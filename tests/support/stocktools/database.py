"""A fake project's database by plain DB-API: quick to import, for tools run as processes."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["SETTINGS", "FakeDatabase", "FakeRow", "read_clock"]

SETTINGS: Final = "fake.json"
CLOCK: Final = "fake_clock"
BUSY_S: Final = 30.0


class FakeRow(dict[str, Any]):
    """A row; columns are attributes."""

    def __getattr__(self, name: str) -> Any:
        """Return a column's value."""
        return self[name]


class _Login(NamedTuple):
    user: str
    password: str
    database: str
    socket: str


def read_clock(root: Path) -> int:
    """Return a project's time, s: that of its clock file, or the machine's."""
    try:
        return int((root / CLOCK).read_text())
    except (OSError, ValueError):
        return int(time.time())


class FakeDatabase:
    """One connection; every statement is a transaction, as for BOINC's daemons."""

    def __init__(self, url: str) -> None:
        self._sqlite = url.startswith("sqlite")
        self._link: Any = _open_sqlite(url) if self._sqlite else _open_mariadb(url)

    @classmethod
    def of(cls, root: Path) -> Self:
        """Return the database of a project made by `make_fake_project`."""
        return cls(json.loads((root / SETTINGS).read_text())["url"])

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the database raises when it refuses."""
        if self._sqlite:
            return (sqlite3.Error,)
        import pymysql  # noqa: PLC0415 - only there where it is used

        return (pymysql.Error,)

    def rows(self, query: str, *values: object) -> list[FakeRow]:
        """Return the rows of a query with ``?`` for values."""
        with closing(self._link.cursor()) as cursor:
            cursor.execute(self._native(query), values)
            names = [column[0] for column in cursor.description]
            return [FakeRow(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def row(self, query: str, *values: object) -> FakeRow | None:
        """Return the first row of a query."""
        found = self.rows(query, *values)
        return found[0] if found else None

    def run(self, query: str, *values: object) -> int:
        """Run a statement; returns how many rows it changed."""
        with closing(self._link.cursor()) as cursor:
            cursor.execute(self._native(query), values)
            return int(cursor.rowcount)

    def insert(self, table: str, rows: list[dict[str, object]]) -> None:
        """Insert rows by one statement: all of them, or none."""
        names = list(rows[0])
        marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * len(rows))
        columns = ", ".join(f"`{name}`" for name in names)
        values = [row[name] for row in rows for name in names]
        self.run(f"INSERT INTO `{table}` ({columns}) VALUES {marks}", *values)  # noqa: S608 - names of our own

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _native(self, query: str) -> str:
        return query if self._sqlite else query.replace("?", "%s")


def _open_sqlite(url: str) -> sqlite3.Connection:
    link = sqlite3.connect(
        url.removeprefix("sqlite:///"),
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    link.execute("PRAGMA journal_mode = WAL")
    link.execute("PRAGMA synchronous = OFF")  # nobody pulls this machine's plug
    return link


def _open_mariadb(url: str) -> Any:
    import pymysql  # noqa: PLC0415 - only there where it is used

    login = _login(url)
    return pymysql.connect(
        user=login.user,
        password=login.password,
        database=login.database,
        unix_socket=login.socket,
        autocommit=True,
    )


def _login(url: str) -> _Login:
    parts = urlsplit(url)
    socket = parse_qs(parts.query).get("unix_socket", [""])[0]
    return _Login(
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        parts.path.lstrip("/"),
        socket,
    )
