"""Many rows in few statements: the same rows as SQLAlchemy's own forms would store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import ColumnDefault, Table, event, insert, select

from stoilo.core.errors import InternalError
from stoilo.server.db import schema
from stoilo.server.db.bulk import (
    assign_many,
    draw_tokens,
    insert_many,
    select_in,
    update_many,
)
from stoilo.server.db.store import Store
from stoilo.server.engines.embedded.db import schema as engine_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = schema.content
TABLES = [
    *schema.METADATA.sorted_tables,
    *engine_schema.metadata.sorted_tables,
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return an empty store."""
    store = Store.open(f"sqlite:///{tmp_path / 'server.sqlite'}")
    yield store
    store.close()


def contents(count: int) -> list[dict[str, object]]:
    """Return that many rows of `CONTENT`."""
    return [{"digest": f"{n:064x}", "data": b"%d" % n} for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 200])
def test_any_number_of_rows_all_are_stored(store: Store, count: int) -> None:
    with store.write() as connection:
        insert_many(connection, CONTENT, contents(count))
    with store.read() as connection:
        found = connection.execute(select(CONTENT).order_by(CONTENT.c.digest)).all()
    assert [row._asdict() for row in found] == contents(count)


@pytest.mark.parametrize("count", [1, 3])
def test_columns_left_out_get_the_tables_defaults(store: Store, count: int) -> None:
    events = [{"key": f"k{n}", "kind": "record", "created_at": n} for n in range(count)]
    attempt = {"task_id": "t", "number": 1, "state": "created", "created_at": 1}
    with store.write() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        insert_many(connection, schema.event, events)
        insert_many(
            connection,
            schema.attempt,
            [{**attempt, "number": n} for n in range(count)],
        )
        rows = connection.execute(select(schema.attempt)).all()
        names = connection.scalars(select(schema.event.c.key)).all()
        connection.exec_driver_sql("DELETE FROM attempt")
    assert {(row.policy_digest, row.last_code, row.leaf) for row in rows} == {
        ("", "", None)
    }
    assert names == [event["key"] for event in events]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_default_of_our_tables_is_a_plain_value(table: Table) -> None:
    for column in table.columns:
        default = column.default
        assert default is None or (
            isinstance(default, ColumnDefault)
            and isinstance(default.arg, str | int | float)
        )


def test_row_that_breaks_a_rule_leaves_nothing_of_its_batch(store: Store) -> None:
    rows = [*contents(100), contents(1)[0]]
    with pytest.raises(InternalError) as caught, store.write() as connection:
        insert_many(connection, CONTENT, rows)
    assert caught.value.code == "STO-R030"
    with store.read() as connection:
        assert connection.execute(select(CONTENT)).all() == []


@pytest.mark.parametrize("asked", [0, 1, 511, 512, 513, 1300])
def test_any_number_of_keys_those_that_exist_come_back(
    store: Store, asked: int
) -> None:
    with store.write() as connection:
        connection.execute(insert(CONTENT), contents(600))
        digest = CONTENT.c.digest
        wanted = [f"{n:064x}" for n in range(asked)]
        found = select_in(connection, [digest, CONTENT.c.data], digest, wanted)
    assert sorted(map(tuple, found)) == [
        (row["digest"], row["data"]) for row in contents(min(asked, 600))
    ]


def test_name_that_sql_uses_itself_is_a_column_like_any_other(store: Store) -> None:
    batch = {"account_id": 1, "start": 1, "end": 2}
    with store.write() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        insert_many(connection, schema.refusal_batch, [batch, {**batch, "end": 3}])
        end = schema.refusal_batch.c.end
        assert select_in(connection, [end], end, [3, 4]) == [(3,)]
        connection.exec_driver_sql("DELETE FROM refusal_batch")


def test_update_of_many_rows_changes_each_by_its_own_values(store: Store) -> None:
    with store.write() as connection:
        insert_many(connection, CONTENT, contents(3))
        values = [(b"a", f"{0:064x}"), (b"b", f"{2:064x}"), (b"c", "nobody")]
        update_many(connection, "UPDATE content SET data = ? WHERE digest = ?", values)
        found = connection.scalars(select(CONTENT.c.data).order_by(CONTENT.c.digest))
        assert list(found) == [b"a", b"1", b"b"]


def test_assignment_to_many_rows_needs_few_statements(url: str) -> None:
    table, statements = schema.account, []
    store = Store.open(url)
    event.listen(
        store._writer, "before_cursor_execute", lambda *said: statements.append(said[2])
    )
    with store.write() as connection:
        names = [{"name": f"a{n}", "salt": "", "created_at": 1} for n in range(300)]
        insert_many(connection, table, names)
        rows = dict(connection.execute(select(table.c.id, table.c.name)).all())
        wanted = {row: 10 + row for row in list(rows)[:290]}
        assign_many(connection, table.c.created_at, table.c.id, wanted, {"salt": "s"})
        assign_many(connection, table.c.created_at, table.c.id, {}, {"salt": "s"})
        found = connection.execute(select(table)).all()
    assert all(row.created_at == wanted.get(row.id, 1) for row in found)
    assert [row.salt for row in found].count("s") == 290
    assert sum(one.startswith("UPDATE") for one in statements) == 3
    store.close()


@pytest.mark.parametrize(("count", "size"), [(0, 8), (1, 8), (5, 24)])
def test_drawn_tokens_have_their_size_and_none_is_another(
    count: int, size: int
) -> None:
    tokens = draw_tokens(count, size)
    assert [len(bytes.fromhex(token)) for token in tokens] == [size] * count
    assert len({*tokens, *draw_tokens(count, size)}) == 2 * count
