"""A whole project whose tasks lie in MariaDB, through a killed server and a killed database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from stoilo.core.skeleton import decode
from stoilo.testing.deployment import Deployment
from stoilo.testing.mariadb import MariaServer
from stoilo.testing.wire import RawClient

pytestmark = pytest.mark.slow


def write_settings(data: Path, url: str) -> None:
    data.mkdir()
    settings = data / "stoilo.toml"
    settings.write_text(f'database = "{url}"\n')
    settings.chmod(0o600)


def finish(client: RawClient, task_id: str) -> object:
    answer = client.wait(task_id)
    assert answer.state == "succeeded"
    return decode(answer.value)


def test_tasks_in_mariadb_survive_both_servers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with MariaServer() as database:
        url = database.create_database()
        write_settings(data, url)
        with Deployment(data, volunteers=2) as deployment:
            assert deployment.line is not None
            connection = Path(deployment.line.connection)
            with RawClient(connection) as client:
                assert finish(client, client.submit()) == 42
                acknowledged = client.submit()
            deployment.kill()
            database.kill()
            database.start()
            deployment.start()
            with RawClient(connection) as client:
                assert finish(client, acknowledged) == 42
        engine = create_engine(url)
        with engine.connect() as found:
            done = found.execute(
                text("SELECT state, COUNT(*) FROM task GROUP BY state")
            )
            assert [tuple(row) for row in done] == [("succeeded", 2)]
        engine.dispose()
    assert not os.path.lexists(data / "server.sqlite")
