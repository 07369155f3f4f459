"""The history of both databases ends in exactly what the models say."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.schema import CreateIndex, CreateTable

import stoilo.server.migrations as history
from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded.database import ENGINE, Database
from stoilo.server.migrations import Branch, render_upgrade, upgrade
from stoilo.server.store import SERVER, open_engine

BRANCHES = [SERVER, ENGINE]
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


def statements(text: str) -> set[frozenset[str]]:
    """Return each statement as the set of its lines: order does not matter."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return {
        frozenset(line.strip().rstrip(",") for line in one.splitlines() if line.strip())
        for one in "\n".join(lines).replace("IF NOT EXISTS ", "").split(";")
        if "CREATE" in one
    }


@by_branch
def test_empty_database_becomes_what_the_models_say(
    branch: Branch, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'new.sqlite'}"
    upgrade(url, branch)
    assert differences(url, branch) == []
    upgrade(url, branch)


@pytest.mark.parametrize(
    ("branch", "revision"), [(one, old) for one in BRANCHES for old in revisions(one)]
)
def test_database_of_any_old_revision_becomes_what_the_models_say(
    branch: Branch, revision: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'old.sqlite'}"
    upgrade(url, branch, revision)
    upgrade(url, branch)
    assert differences(url, branch) == []


@by_branch
def test_comparison_sees_a_missing_column(branch: Branch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.sqlite'}"
    upgrade(url, branch)
    engine, table = open_engine(url), branch.models.sorted_tables[0]
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD extra INTEGER")
        connection.commit()
    engine.dispose()
    assert len(differences(url, branch)) == 1


@by_branch
def test_mariadb_gets_exactly_the_models_tables(branch: Branch) -> None:
    output, dialect = io.StringIO(), MariaDBDialect()
    render_upgrade("mariadb", branch, output)
    made = {one for one in statements(output.getvalue()) if not _versions(one, branch)}
    tables = branch.models.sorted_tables
    wanted = [CreateTable(table) for table in tables]
    wanted += [CreateIndex(index) for table in tables for index in table.indexes]
    text = ";".join(str(one.compile(dialect=dialect)) for one in wanted)
    assert made == statements(text)


def _versions(statement: frozenset[str], branch: Branch) -> bool:
    return any(branch.version_table in line for line in statement)


def test_both_branches_fit_into_one_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'both.sqlite'}"
    for branch in BRANCHES:
        upgrade(url, branch)
    engine = open_engine(url)
    with engine.connect() as connection:
        for branch in BRANCHES:
            options = {"version_table": branch.version_table}
            context = MigrationContext.configure(connection, opts=options)
            assert list(context.get_current_heads()) == revisions(branch)[-1:]
    engine.dispose()


def test_engine_tables_of_before_the_history_are_taken_as_they_are(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'early.sqlite'}"
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
    with pytest.raises(InternalError, match="STO-E003"):
        database.upgrade()
    database.close()
