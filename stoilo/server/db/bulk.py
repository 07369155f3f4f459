"""Many rows at a time: what SQLAlchemy's own forms cost, most of it is not the rows.

Preparing the parameters of one row costs several times as much as storing it, and every
step of a statement gives up the interpreter and has to ask for it again; so rows go out
some in each statement, as plain tuples. Only for our own tables, whose columns need no
conversion. The caller owns the transaction. Nothing here is from another party: values
are always parameters, names are the tables' own.
"""

from __future__ import annotations

import os
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnDefault, insert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Column, Connection, Table


_ROWS: Final = 64
"""Rows in one INSERT: at most some thousand parameters, of SQLite's 32,766."""

_CASES: Final = 128
"""Values in one CASE, which is searched from its beginning for each row."""

_KEYS: Final = 512  # values in one IN


def insert_many(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]
) -> None:
    """Insert rows that all name the same columns; defaults of the table are filled in."""
    if not rows:
        return
    if len(rows) == 1:
        connection.execute(insert(table), [dict(rows[0])])
        return
    names = list(rows[0])
    values_of = itemgetter(*names)
    defaults = {
        column.name: column.default.arg
        for column in table.columns
        if column.name not in rows[0] and isinstance(column.default, ColumnDefault)
    }
    rest = tuple(defaults.values())
    if len(names) == 1:
        values = [(values_of(row), *rest) for row in rows]
    else:
        values = [values_of(row) + rest for row in rows]
    columns = _names(connection, [*names, *defaults])
    mark = f"({_marks(len(names) + len(rest))})"
    for at in range(0, len(values), _ROWS):
        part = values[at : at + _ROWS]
        marks = ", ".join([mark] * len(part))
        query = f"INSERT INTO {table.name} ({columns}) VALUES {marks}"  # noqa: S608 - our own names
        _run(connection, query, tuple(chain.from_iterable(part)))


def update_many(
    connection: Connection, query: str, values: Sequence[tuple[object, ...]]
) -> None:
    """Run an UPDATE of our own, with ``?`` for values, once for each row of `values`."""
    connection.exec_driver_sql(_native(connection, query), list(values))


def assign_many(
    connection: Connection,
    column: Column[Any],
    key: Column[Any],
    values: Mapping[int, object],
    fixed: Mapping[str, object],
) -> None:
    """Give `column` the value of its row's `key`, and other columns the `fixed` ones.

    Many rows a statement: a MariaDB answers each statement by itself.
    """
    [target, which, *others] = [
        _names(connection, [name]) for name in (column.name, key.name, *fixed)
    ]
    rest = "".join(f", {name} = ?" for name in others)
    pairs = list(values.items())
    for at in range(0, len(pairs), _CASES):
        part = pairs[at : at + _CASES]
        cases = " ".join(["WHEN ? THEN ?"] * len(part))
        query = (
            f"UPDATE {column.table} SET {target} = CASE {which} {cases} END{rest}"  # noqa: S608 - our own names
            f" WHERE {which} IN ({_marks(len(part))})"
        )
        keys = [one for one, _ in part]
        _run(connection, query, (*chain.from_iterable(part), *fixed.values(), *keys))


def select_in(
    connection: Connection,
    columns: Iterable[Column[Any]],
    key: Column[Any],
    values: Iterable[object],
) -> list[Any]:
    """Return `columns` of the rows whose `key` is one of `values`, in no order.

    Rows of SQLAlchemy's: each column is an attribute, by its name.
    """
    names = _names(connection, [column.name for column in columns])
    of = _names(connection, [key.name])
    table = _names(connection, [key.table.name])
    query = f"SELECT {names} FROM {table} WHERE {of} IN"  # noqa: S608 - our own names
    wanted = list(values)
    found: list[Any] = []
    for at in range(0, len(wanted), _KEYS):
        part = tuple(wanted[at : at + _KEYS])
        found += _run(connection, f"{query} ({_marks(len(part))})", part).all()
    return found


def delete_in(
    connection: Connection, key: Column[Any], values: Iterable[object]
) -> int:
    """Delete the rows whose `key` is one of `values`; returns how many there were."""
    named = _names(connection, [key.table.name])  # `blob` is a word of MariaDB's own
    query = f"DELETE FROM {named} WHERE {_names(connection, [key.name])} IN"  # noqa: S608 - our own names
    wanted, count = list(values), 0
    for at in range(0, len(wanted), _KEYS):
        part = tuple(wanted[at : at + _KEYS])
        count += _run(connection, f"{query} ({_marks(len(part))})", part).rowcount
    return count


def draw_tokens(count: int, size: int) -> list[str]:
    """Return random texts of `size` bytes each, in hex, all drawn from the system at once.

    Each question to the system gives up the interpreter.
    """
    drawn, width = os.urandom(count * size).hex(), 2 * size
    return [drawn[at : at + width] for at in range(0, len(drawn), width)]


def _run(connection: Connection, query: str, values: tuple[object, ...]) -> Any:  # noqa: ANN401 - SQLAlchemy's cursor result
    return connection.exec_driver_sql(_native(connection, query), values)


def _native(connection: Connection, query: str) -> str:
    """Return the query with the marks of the database's driver."""
    if connection.dialect.paramstyle == "qmark":
        return query
    return query.replace("?", "%s")


def _names(connection: Connection, names: Iterable[str]) -> str:
    """Return columns' names, quoted where the database has another use for one."""
    return ", ".join(map(connection.dialect.identifier_preparer.quote, names))


def _marks(count: int) -> str:
    return ", ".join("?" * count)
