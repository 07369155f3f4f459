"""Does a database have the tables that this version makes? By the text of the schema.

SQLite keeps the text with which a table was made; a bit that flips in it changes what
the file means without breaking its structure.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from stoilo.audit import headdb, logdb, seen, side
from stoilo.audit.sqlite import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["find_schema_faults"]

_Schema = dict[bytes, bytes]
_LABELS_BEFORE_SUMS = """CREATE TABLE labels (
        label TEXT NOT NULL,
        idx INTEGER NOT NULL,
        PRIMARY KEY (label, idx)
    ) STRICT, WITHOUT ROWID"""
_ADDED = "ALTER TABLE labels ADD COLUMN sum INTEGER"
_VERSIONS: dict[str, Sequence[Sequence[str]]] = {
    "head.sqlite": [[headdb.SCHEMA]],
    "log.sqlite": [
        logdb.SCHEMA,
        [*logdb.SCHEMA[:2], _LABELS_BEFORE_SUMS, logdb.SCHEMA[3]],
        [*logdb.SCHEMA[:2], _LABELS_BEFORE_SUMS, logdb.SCHEMA[3], _ADDED],
    ],
    "seen.sqlite": [[seen.SCHEMA]],
    "side.sqlite": [[side.SCHEMA]],
}


def find_schema_faults(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the tables (place, message) of a database that this version does not make.

    Tables that are missing are not named: a crash may have come before they were made,
    and whoever reads them misses them.

    Raises:
        sqlite3.DatabaseError: the file cannot be read.
    """
    versions = _VERSIONS.get(path.name)
    if versions is None:
        return
    with closing(connect(path, read_only=True)) as connection:
        found = _read(connection)
    known = [_make(statements) for statements in versions]
    for name, text in found.items():
        if not any(one.get(name) == text for one in known):
            table = name.decode(errors="backslashreplace")
            yield f"schema of {table!r}", "is not a table that this version makes"


def _make(statements: Sequence[str]) -> _Schema:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.executescript(statement)
        return _read(connection)


def _read(connection: sqlite3.Connection) -> _Schema:
    connection.text_factory = bytes
    query = "SELECT name, tbl_name, coalesce(sql, '') FROM sqlite_master"
    return {row[0]: row[1] + b"\n" + row[2] for row in connection.execute(query)}
