from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sqlalchemy import delete

sys.path.insert(0, str(Path(__file__).parent))  # bench and contract, beside us

from stoilo.server.engines.embedded.db.database import ENGINE, Database
from tests.support.server import ManualClock


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)


@pytest.fixture(scope="session")
def engine_in_mariadb(mariadb):
    """The engine's tables, made once."""
    database = Database(mariadb.create_database())
    database.upgrade()
    yield database
    database.close()


@pytest.fixture
def mariadb_url(engine_in_mariadb):
    """URL of the engine's tables in MariaDB, empty."""
    with engine_in_mariadb.write() as connection:
        for table in reversed(ENGINE.models.sorted_tables):
            connection.execute(delete(table))
    return engine_in_mariadb.url


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.slow)])
def engine_url(request):
    """URL of an empty database of either kind, as `EmbeddedBench` takes it."""
    if request.param == "mariadb":
        return request.getfixturevalue("mariadb_url")
    return ""
