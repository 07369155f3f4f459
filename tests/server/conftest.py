from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoilo.server.db.store import SERVER, Store
from tests.support.mariadb import MariaServer
from tests.support.serverbench import Bench, make_bench


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a new database of either kind."""
    if request.param == "mariadb":
        return str(request.getfixturevalue("mariadb").create_database())
    return f"sqlite:///{tmp_path / 'new.sqlite'}"


@pytest.fixture(scope="session")
def server_in_mariadb(mariadb: MariaServer) -> Iterator[Store]:
    """The server's tables, made once."""
    store = Store.open(mariadb.create_database())
    yield store
    store.close()


@pytest.fixture
def server_url(server_in_mariadb: Store) -> str:
    """URL of the server's tables in MariaDB, empty."""
    with server_in_mariadb.write() as connection:
        SERVER.models.create_all(connection)  # what a test has dropped
        for table in reversed(SERVER.models.sorted_tables):
            connection.execute(table.delete())
        connection.exec_driver_sql("ALTER TABLE account AUTO_INCREMENT = 1")
    return server_in_mariadb.engine.url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    on_mariadb = request.param == "mariadb"
    return make_bench(
        tmp_path, url=request.getfixturevalue("server_url") if on_mariadb else ""
    )


@pytest.fixture(scope="session")
def bench_maker() -> Callable[..., Bench]:
    """`make_bench`, for fixtures of other files."""
    return make_bench
