from __future__ import annotations

import contextlib

import pytest
from sqlalchemy import select

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database

THREADS = 32 + 40  # that answer hosts, and that do everything else for the web


@pytest.fixture
def database(tmp_path):
    made = Database(f"sqlite:///{tmp_path / 'engine.sqlite'}")
    made.upgrade()
    yield made
    made.close()


def test_as_many_read_at_once_as_there_are_threads(database):
    with contextlib.ExitStack() as open_ones:
        for _ in range(THREADS):
            connection = open_ones.enter_context(database.read())
            assert connection.execute(select(schema.users.c.id)).all() == []
    assert database.engine.pool.checkedin() < THREADS  # most are closed again
