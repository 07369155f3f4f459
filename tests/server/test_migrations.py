"""The history of both databases ends in exactly what the models say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect

import stoilo.server.migrations as history
from stoilo.core.errors import InternalError
from stoilo.server.db.store import SERVER, open_engine, upgrade
from stoilo.server.engines.embedded.db.database import ENGINE, Database
from stoilo.server.engines.stock.project.database import STOCK
from stoilo.server.migrations import Branch
from tests.support.mariadb import MariaServer

BRANCHES = [SERVER, ENGINE, STOCK]
CHANGES = {"CREATE", "ALTER", "DROP", "INSERT", "UPDATE"}
MOST_STATEMENTS = 500
by_branch = pytest.mark.parametrize("branch", BRANCHES, ids=lambda one: one.name)


def revisions(branch: Branch) -> list[str]:
    """Return the branch's revisions, oldest first."""
    config = Config()
    config.set_main_option("script_location", str(Path(history.__file__).parent))
    found = ScriptDirectory.from_config(config).walk_revisions()
    return [one.revision for one in found if branch.name in one.branch_labels][::-1]


def differences(url: str, branch: Branch) -> list[object]:
    """Return what alembic would have to change to reach the models."""
    engine = open_engine(url)
    options = {"version_table": branch.version_table, "compare_type": True}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, branch.models)
    engine.dispose()
    return found


@by_branch
def test_empty_database_becomes_what_the_models_say(branch: Branch, url: str) -> None:
    upgrade(url, branch)
    assert differences(url, branch) == []
    upgrade(url, branch)


@by_branch
def test_empty_mariadb_becomes_what_the_models_say(
    branch: Branch, mariadb: MariaServer
) -> None:
    url = mariadb.create_database()
    upgrade(url, branch)
    assert differences(url, branch) == []


@by_branch
def test_history_ends_at_the_branchs_newest_revision(branch: Branch) -> None:
    assert revisions(branch)[-1] == branch.newest


@by_branch
def test_older_database_goes_the_way_of_the_revisions(branch: Branch, url: str) -> None:
    upgrade(url, replace(branch, newest="a later one"), branch.newest)
    assert differences(url, branch) == []


@by_branch
def test_comparison_sees_a_missing_column(branch: Branch, url: str) -> None:
    upgrade(url, branch)
    engine, table = open_engine(url), branch.models.sorted_tables[0]
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD extra INTEGER")
        connection.commit()
    engine.dispose()
    assert len(differences(url, branch)) == 1


@by_branch
def test_no_number_is_cut_to_single_precision(branch: Branch) -> None:
    dialect = MariaDBDialect()
    for table in branch.models.sorted_tables:
        kinds = [column.type.compile(dialect=dialect) for column in table.columns]
        assert "FLOAT" not in kinds, table.name


def test_all_branches_fit_into_one_database(url: str) -> None:
    for branch in BRANCHES:
        upgrade(url, branch)
    engine = open_engine(url)
    with engine.connect() as connection:
        for branch in BRANCHES:
            options = {"version_table": branch.version_table}
            context = MigrationContext.configure(connection, opts=options)
            assert list(context.get_current_heads()) == revisions(branch)[-1:]
    engine.dispose()


def test_engine_tables_of_before_the_history_are_taken_as_they_are(url: str) -> None:
    engine = open_engine(url)
    with engine.connect() as connection:
        ENGINE.models.create_all(connection)
        connection.commit()
    engine.dispose()
    upgrade(url, ENGINE)
    assert differences(url, ENGINE) == []


def test_engine_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "engine.sqlite").write_bytes(b"not a database" * 100)
    database = Database(f"sqlite:///{tmp_path / 'engine.sqlite'}")
    with pytest.raises(InternalError, match="STO-R030"):
        database.upgrade()
    database.close()


class Killed(Exception):
    """The process ends here."""


@contextmanager
def killed_before(count: int) -> Iterator[None]:
    """End every upgrade before its `count`-th statement that changes anything, from 1."""
    left = count

    def look(_connection, _cursor, statement, _values, _context, _many):
        nonlocal left
        if statement.split(None, 1)[0].upper() in CHANGES:
            left -= 1
            if left == 0:
                raise Killed

    event.listen(Engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", look)


def upgrade_with_kills(url: str, branch: Branch) -> int:
    """Upgrade, killed one statement later each time; returns how often.

    Where statements are repeated (``IF NOT EXISTS``), that is before each of them.
    """
    for kills in range(MOST_STATEMENTS):
        with suppress(Killed), killed_before(kills + 1):
            upgrade(url, branch)
            return kills
    raise AssertionError("it does not end")


@pytest.mark.slow
@by_branch
def test_upgrade_of_mariadb_killed_again_and_again_goes_on(
    branch: Branch, mariadb: MariaServer
) -> None:
    url = mariadb.create_database()
    assert upgrade_with_kills(url, branch) >= len(revisions(branch))
    assert differences(url, branch) == []


def test_upgrade_killed_before_a_statement_has_not_made_it(url: str) -> None:
    """The control: the kill is one."""
    with pytest.raises(Killed), killed_before(2):
        upgrade(url, SERVER)
    assert differences(url, SERVER) != []


def test_older_server_gets_the_columns_that_came_since(url: str) -> None:
    """The control: what the first revision's database lacks is seen as missing."""
    upgrade(url, SERVER)
    engine = open_engine(url)
    with engine.connect() as connection:
        for change in (
            "DROP TABLE allowance",
            "DROP INDEX account_group" + " ON account" * (engine.name != "sqlite"),
            "ALTER TABLE account DROP COLUMN group_name",
            "ALTER TABLE token DROP COLUMN name",
            "UPDATE alembic_version SET version_num = 'server0001'",
        ):
            connection.exec_driver_sql(change)
        connection.commit()
    engine.dispose()
    assert differences(url, SERVER)
    upgrade(url, SERVER)
    assert differences(url, SERVER) == []
