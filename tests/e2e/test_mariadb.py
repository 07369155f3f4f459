"""A whole project whose tables all lie in MariaDB, through killed servers and databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from stoilo.core.codec.skeleton import decode
from stoilo.server.backup.restoring import Restore, restore_backup
from stoilo.testing.deployment import Deployment
from tests.support.mariadb import MariaServer
from tests.support.wire import RawClient

pytestmark = pytest.mark.slow
PATIENCE_S = 120.0


def write_settings(data: Path, url: str) -> None:
    data.mkdir()
    settings = data / "stoilo.toml"
    settings.write_text(f'database = "{url}"\n')
    settings.chmod(0o600)


@contextmanager
def client_of(deployment: Deployment) -> Iterator[RawClient]:
    assert deployment.line is not None
    with RawClient(Path(deployment.line.connection)) as client:
        yield client


def finish(client: RawClient, task_id: str) -> object:
    answer = client.wait(task_id, PATIENCE_S)
    assert answer.state == "succeeded"
    return decode(answer.value)


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    engine = create_engine(url)
    with engine.connect() as found:
        rows = [tuple(row) for row in found.execute(text(query))]
    engine.dispose()
    return rows


def assert_each_finished_once(url: str, count: int) -> None:
    """No task is lost, and none was finished, logged or handed over twice."""
    by_state = ask(url, "SELECT state, COUNT(*) FROM task GROUP BY state")
    assert by_state == [("succeeded", count)]
    outcomes = "SELECT COUNT(*) FROM event WHERE kind = 'outcome'"
    assert ask(url, outcomes) == [(count,)]
    ended = "SELECT COUNT(*) FROM engine_workunit WHERE outcome IS NOT NULL"
    assert ask(url, ended) == [(count,)]
    untold = "SELECT COUNT(*) FROM engine_workunit WHERE tell_at IS NOT NULL"
    assert ask(url, untold) == [(0,)]


def wait_for_copies_under_way(url: str) -> None:
    query = "SELECT COUNT(*) FROM engine_result WHERE state <> 'unsent'"
    end = time.monotonic() + PATIENCE_S
    while ask(url, query) == [(0,)]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_tasks_survive_both_servers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with MariaServer() as database:
        url = database.create_database()
        write_settings(data, url)
        with Deployment(data, volunteers=2) as deployment:
            with client_of(deployment) as client:
                assert finish(client, client.submit()) == 42
                acknowledged = client.submit()
            deployment.kill()
            database.kill()
            database.start()
            deployment.start()
            with client_of(deployment) as client:
                assert finish(client, acknowledged) == 42
        assert_each_finished_once(url, 2)
    assert not os.path.lexists(data / "server.sqlite")
    assert not os.path.lexists(data / "engine" / "engine.sqlite")


def test_database_restarted_in_mid_task_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with MariaServer() as database:
        url = database.create_database()
        write_settings(data, url)
        with (
            Deployment(data, volunteers=2) as deployment,
            client_of(deployment) as client,
        ):
            tasks = [client.submit() for _ in range(8)]
            wait_for_copies_under_way(url)
            database.kill()
            database.start()
            tasks += [client.submit()]  # calls find the new server
            database.stop()
            database.start()
            assert [finish(client, task) for task in tasks] == [42] * 9
        assert_each_finished_once(url, 9)


def test_project_moves_from_files_into_mariadb_by_backup_and_restore(
    tmp_path: Path,
) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with Deployment(data) as deployment, client_of(deployment) as client:
        pending = client.submit()
    backup(data, tmp_path / "first")
    with MariaServer() as database:
        url = database.create_database()
        wish = Restore(tmp_path / "first", moved, nothing_newer=True, database=url)
        restore_backup(wish)
        with Deployment(moved, volunteers=2) as deployment:
            with client_of(deployment) as client:
                assert finish(client, pending) == 42
            backup(moved, tmp_path / "second")  # online, rows of MariaDB
        assert_each_finished_once(url, 1)
        other = database.create_database()
        again = Restore(
            tmp_path / "second", tmp_path / "again", log=moved, database=other
        )
        restore_backup(again)
        assert_each_finished_once(other, 1)


def backup(data: Path, output: Path) -> None:
    words = ["backup", "--data", str(data), "--output", str(output), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", *words, "--offline-keys"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["offline_keys"] is True
