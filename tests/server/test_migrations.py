"""The history of both databases ends in exactly what the models say."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, insert, select
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.schema import CreateIndex, CreateTable

import stoilo.server.migrations as history
from stoilo.core.errors import InternalError
from stoilo.server.db.store import SERVER, begin_writing, open_engine, upgrade
from stoilo.server.engines.embedded.db.database import ENGINE, Database
from stoilo.server.engines.stock.project.database import STOCK
from stoilo.server.migrations import Branch, render_upgrade
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


def statements(text: str) -> set[frozenset[str]]:
    """Return each statement as the set of its lines: order does not matter."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    plain = re.sub(r"IF (NOT )?EXISTS |`", "", "\n".join(lines))
    gone = re.findall(r"ALTER TABLE (\w+) DROP COLUMN (\w+)", plain)
    dropped = re.findall(r"DROP INDEX (\w+)", plain)
    return {
        frozenset(
            line.strip().rstrip(",")
            for line in one.splitlines()
            if line.strip() and not _is_dropped(line.split(), one, gone)
        )
        for one in plain.split(";")
        if "CREATE" in one
        and not any(f"CREATE INDEX {name} " in one for name in dropped)
    }


def _is_dropped(words: list[str], statement: str, gone: list[tuple[str, str]]) -> bool:
    """Whether a line makes a column that a later revision drops."""
    return any(
        f"CREATE TABLE {table} " in statement and words[0] == column
        for table, column in gone
    )


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


@pytest.mark.parametrize(
    ("branch", "revision"), [(one, old) for one in BRANCHES for old in revisions(one)]
)
def test_database_of_any_old_revision_becomes_what_the_models_say(
    branch: Branch, revision: str, url: str
) -> None:
    upgrade(url, branch, revision)
    upgrade(url, branch)
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
def test_mariadb_gets_exactly_the_models_tables(branch: Branch) -> None:
    output, dialect = io.StringIO(), MariaDBDialect()
    render_upgrade("mariadb", branch, output)
    made = {one for one in statements(output.getvalue()) if not _versions(one, branch)}
    tables = branch.models.sorted_tables
    wanted = [CreateTable(table) for table in tables]
    wanted += [CreateIndex(index) for table in tables for index in table.indexes]
    text = ";".join(str(one.compile(dialect=dialect)) for one in wanted)
    assert made == statements(text)


@by_branch
def test_no_number_is_cut_to_single_precision(branch: Branch) -> None:
    dialect = MariaDBDialect()
    for table in branch.models.sorted_tables:
        kinds = [column.type.compile(dialect=dialect) for column in table.columns]
        assert "FLOAT" not in kinds, table.name


def _versions(statement: frozenset[str], branch: Branch) -> bool:
    return any(branch.version_table in line for line in statement)


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
    with pytest.raises(InternalError, match="STO-E003"):
        database.upgrade()
    database.close()


WAITING = """
INSERT INTO account VALUES (1, 'ada', 'salt', 1);
INSERT INTO task VALUES ('t1', 1, 'k1', 'd', 'cancelled', 1, 'pure', 0, '{}', 1, 2);
INSERT INTO task VALUES ('t2', 1, 'k2', 'd', 'cancelled', 1, 'pure', 0, '{}', 1, 2);
INSERT INTO outcome (task_id, state, attempt, error_type, error_text, code, output,
  created_at, logged, log_index) VALUES ('t1', 'cancelled', 1, '', '', '', '', 7, 0, NULL),
  ('t2', 'cancelled', 1, '', '', '', '', 7, 1, 3);
INSERT INTO refusal_batch VALUES (4, 1, 10, 20, X'6c656166', NULL);
INSERT INTO refusal_batch VALUES (5, 1, 10, 20, X'6c656166', 9)"""


WAITED = [
    ("outcome:t1", "outcome", None, 7, None),
    ("refusals:4", "record", b"leaf", 20, None),
]


def fill_second_revision(url: str) -> None:
    """Make a database of revision 0002 with rows that wait for the log."""
    upgrade(url, SERVER, "0002")
    engine = open_engine(url)
    with begin_writing(engine, SERVER) as old:
        for statement in WAITING.split(";\n"):
            old.exec_driver_sql(statement)
    engine.dispose()


def outbox(url: str) -> list[tuple[object, ...]]:
    """Return what waits for the log."""
    event = SERVER.models.tables["event"].c
    query = select(event.key, event.kind, event.leaf, event.created_at, event.log_index)
    engine = open_engine(url)
    with engine.connect() as new:
        found = [tuple(row) for row in new.execute(query.order_by(event.key))]
    engine.dispose()
    return found


def test_what_waited_for_the_log_waits_in_the_outbox(url: str) -> None:
    fill_second_revision(url)
    upgrade(url, SERVER)
    assert outbox(url) == WAITED


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


@pytest.mark.slow
def test_upgrade_of_mariadb_killed_again_and_again_moves_each_row_once(
    mariadb: MariaServer,
) -> None:
    url = mariadb.create_database()
    fill_second_revision(url)
    assert upgrade_with_kills(url, SERVER)
    assert outbox(url) == WAITED


def test_upgrade_killed_before_a_statement_has_not_made_it(url: str) -> None:
    """The control: the kill is one."""
    with pytest.raises(Killed), killed_before(2):
        upgrade(url, SERVER)
    assert differences(url, SERVER) != []


def test_open_workunits_of_before_get_their_last_moment_of_issue(url: str) -> None:
    upgrade(url, STOCK, "stock0002")
    engine = open_engine(url)
    with engine.connect() as connection:
        connection.execute(
            insert(STOCK.models.tables["stoilo_workunit"]),
            [_old_workunit("open"), {**_old_workunit("over"), "outcome": "cancelled"}],
        )
        connection.commit()
    upgrade(url, STOCK)
    with engine.connect() as connection:
        query = (
            "SELECT name, last_at FROM stoilo_issuing"
            " JOIN stoilo_workunit ON id = workunit_id"
        )
        assert connection.exec_driver_sql(query).all() == [("open", 900)]
    engine.dispose()


def _old_workunit(name: str) -> dict[str, object]:
    numbers = ("min_quorum", "target_results", "max_error", "max_total", "max_success")
    texts = ("app", "input_template", "result_template")
    return {
        "name": name,
        **dict.fromkeys(numbers, 1),
        **dict.fromkeys(texts, "x"),
        "delay_bound_s": 100,
        "not_after": 1000,
        "priority": 0,
        "created_at": 1,
        "outcome": None,
    }
