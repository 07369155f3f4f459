"""What a call for work costs does not grow with the work that waits."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import event

from tests.support.engine import make_spec


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    yield made
    made.engine.close()


def asked_for_work(bench):
    """Return the queries of one call that put copies into an order."""
    asked = []
    engine = bench.engine._database._writer

    def note(_connection, _cursor, statement, values, *_):
        if "ORDER BY engine_result.rank" in statement and "LIMIT" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    assert bench.fetch(1)
    event.remove(engine, "before_cursor_execute", note)
    return asked


def plan(bench, statement, values):
    with closing(sqlite3.connect(bench.directory / "engine.sqlite")) as database:
        rows = database.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    return " ".join(row[3] for row in rows)


def test_copies_to_offer_are_read_in_order_and_not_sorted(bench):
    bench.engine.create_workunits([make_spec(f"w_{number}") for number in range(5)])
    asked = asked_for_work(bench)
    assert asked
    for statement, values in asked:
        found = plan(bench, statement, values)
        assert "engine_result_turn" in found
        assert "TEMP B-TREE" not in found


def test_plan_shows_a_sort_where_there_is_one(bench):
    found = plan(bench, "SELECT id FROM engine_result ORDER BY sent_at", ())
    assert "TEMP B-TREE" in found
