"""A project at home is moved into a (fake) stock project, again and again."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from stoilo.core.errors import StoiloError
from stoilo.server.config import ServerConfig
from stoilo.server.data_directory import claim_directory
from stoilo.server.operations.moving import Moved, move_project
from stoilo.testing.deployment import Deployment
from tests.support.stocktools.project import FakeProject, make_fake_project
from tests.support.wire import RawClient

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server that has volunteers, credit and two tasks under way, stopped."""
    data = tmp_path_factory.mktemp("home") / "data"
    with (
        Deployment(data, volunteers=2) as server,
        RawClient(Path(server.line.connection)) as client,
    ):
        assert client.wait(client.submit()).state == "succeeded"
    with (
        Deployment(data) as server,
        RawClient(Path(server.line.connection)) as client,
    ):
        tasks = [client.submit() for _ in range(2)]
        end = time.monotonic() + 120
        while any(client.poll(task).state != "running" for task in tasks):
            assert time.monotonic() < end
            time.sleep(0.05)
    return data


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home", ignore=lambda *_: ["run"]))


@pytest.fixture
def stock(tmp_path: Path) -> FakeProject:
    return make_fake_project(tmp_path / "project")


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    engine = create_engine(url)
    with engine.begin() as found:
        answer = found.execute(text(query))
        rows = [tuple(row) for row in answer] if answer.returns_rows else []
    engine.dispose()
    return rows


def test_numbers_that_are_taken_are_refused(home: Path, stock: FakeProject) -> None:
    url = stock.database_url
    ask(url, "INSERT INTO user (id, email_addr) VALUES (1, 'other@example.org')")
    with pytest.raises(StoiloError, match="STO-B073"):
        move_project(ServerConfig(data=home), url)
    assert ask(url, "SELECT COUNT(*) FROM user") == [(1,)]
    assert ask(url, "SELECT COUNT(*) FROM host") == [(0,)]


def test_project_without_our_apps_is_refused(home: Path, tmp_path: Path) -> None:
    bare = make_fake_project(tmp_path / "bare", apps=("other",))
    with pytest.raises(StoiloError, match="STO-B008"):
        move_project(ServerConfig(data=home), bare.database_url)


def test_everything_moves_once(home: Path, stock: FakeProject) -> None:
    config, url = ServerConfig(data=home), stock.database_url
    levels = ("pure", "numeric", "tensor")
    assert move_project(config, url) == Moved(2, 0, 2, 0, 2, levels)
    key = (home / "volunteers" / "1" / "key").read_text().strip()
    emails = ask(url, "SELECT id, email_addr, authenticator FROM user ORDER BY id")
    assert emails[0] == (1, "volunteer1@localhost.localdomain", key)
    assert ask(url, "SELECT id, userid FROM host ORDER BY id") in (
        [(1, 1), (2, 2)],
        [(1, 2), (2, 1)],
    )
    tasks = f"sqlite:///{home / 'server.sqlite'}"
    states = "SELECT state, COUNT(*) FROM attempt WHERE number {} 1 GROUP BY state"
    assert dict(ask(tasks, states.format("="))) == {"closed": 2, "done": 1}
    assert dict(ask(tasks, states.format(">"))) == {"created": 2}
    ask(url, "UPDATE user SET name = 'changed there' WHERE id = 1")
    assert move_project(config, url) == Moved(0, 2, 0, 2, 0, levels)
    names = ask(url, "SELECT name FROM user WHERE id = 1")
    assert names == [("changed there",)]


def test_running_server_is_not_moved(home: Path, stock: FakeProject) -> None:
    with (
        closing(claim_directory(home).lock),
        pytest.raises(StoiloError, match="STO-R070"),
    ):
        move_project(ServerConfig(data=home), stock.database_url)
