"""A dry run writes nothing, also where the tables are of an older version."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from stoilo.core.errors import UsageError
from stoilo.server.config import ServerConfig
from stoilo.server.db.store import SERVER, upgrade
from stoilo.server.engines.embedded.db.database import ENGINE
from stoilo.server.operations.moving import move_project
from tests.support.stocktools.project import make_fake_project

NEWEST = "head"


def make_home(place: Path, server: str, engine: str) -> ServerConfig:
    """Make a data directory whose databases are of these revisions."""
    (place / "engine").mkdir(parents=True, mode=0o700)
    place.chmod(0o700)
    files = {
        "server.sqlite": (SERVER, server),
        "engine/engine.sqlite": (ENGINE, engine),
    }
    for name, (branch, revision) in files.items():
        (place / name).touch()
        if revision == NEWEST:  # else a database that was never upgraded
            upgrade(f"sqlite:///{place / name}", branch)
    return ServerConfig(data=place)


def tables(config: ServerConfig) -> list[list[str]]:
    """Return everything that is in both databases."""
    found = []
    for name in ("server.sqlite", "engine/engine.sqlite"):
        engine = create_engine(f"sqlite:///{config.data / name}")
        connection = engine.raw_connection()
        found.append(list(connection.driver_connection.iterdump()))
        connection.close()
        engine.dispose()
    return found


@pytest.mark.parametrize(("server", "engine"), [("", NEWEST), (NEWEST, "")])
def test_dry_run_on_tables_of_an_older_version_is_refused_and_changes_nothing(
    tmp_path: Path, server: str, engine: str
) -> None:
    config = make_home(tmp_path / "home", server, engine)
    before = tables(config)
    stock = make_fake_project(tmp_path / "project")
    with pytest.raises(UsageError, match="STO-B110"):
        move_project(config, stock.database_url, dry_run=True)
    assert tables(config) == before
    move_project(config, stock.database_url)  # the control: a move upgrades
    assert tables(config) != before


def test_dry_run_leaves_every_file_as_it_is(tmp_path: Path) -> None:
    config = make_home(tmp_path / "home", NEWEST, NEWEST)
    stock = make_fake_project(tmp_path / "project")
    before = tables(config)
    moved = move_project(config, stock.database_url, dry_run=True)
    assert (moved.users, moved.hosts, moved.tasks) == (0, 0, 0)
    assert tables(config) == before
    assert not (config.data / "engine" / "account.secret").exists()
