"""Alembic history of the server's and both engines' tables: one tree, three branches.

Each database has its own branch, models and version table, so that they may also lie in
one MariaDB, the stock engine's beside BOINC's. Nothing is released yet: a branch's first
revision makes what the models say, and later ones bring a development root along. The first
release writes its statements out; from then on too a change is a new revision,
``versions/NNNN_*.py`` with ``down_revision`` the last one of its branch, each statement
such that it can be repeated, and `Branch.newest` its name. A database without history gets
today's tables at once; only an older one goes the way of the revisions.
`tests/server/test_migrations.py` says whether the history makes what the models say, also
when it is killed in the middle.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, String, Table, insert, inspect, select
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ONE_AT_A_TIME = threading.Lock()  # Alembic keeps what it works on in its modules
_REVISION_LETTERS = 32  # as Alembic makes its own version table


@dataclass(frozen=True, slots=True)
class Branch:
    """The history of one database.

    Attributes:
        name: label of the branch's first revision.
        version_table: where a database notes how far it is.
        models: what the newest revision makes.
        newest: name of that revision.
    """

    name: str
    version_table: str
    models: MetaData
    newest: str


def migrate(connection: Connection, branch: Branch, revision: str = "") -> None:
    """Bring the database of a writing transaction to a revision of `branch`.

    All or nothing on SQLite. MariaDB commits with every statement that changes a table;
    so each step makes what is not there and drops what is, and an upgrade that was cut
    off goes on at the next start.

    Args:
        connection: the transaction.
        branch: whose tables.
        revision: where to stop; the newest when empty.

    Raises:
        SQLAlchemyError: the database refuses.
    """
    wanted, noted = revision or branch.newest, read_revision(connection, branch)
    if noted == wanted:
        return
    if noted or wanted != branch.newest:
        _follow_history(connection, branch, wanted)
        return
    create_models(connection, branch.models)
    # Last, so that a creation that was cut off is none.
    versions = _version_table(branch)
    connection.execute(CreateTable(versions, if_not_exists=True))
    connection.execute(insert(versions).values(version_num=branch.newest))


def read_revision(connection: Connection, branch: Branch) -> str:
    """Return how far the branch's schema is in a database; empty where it has none."""
    if not inspect(connection).has_table(branch.version_table):
        return ""
    found = connection.scalar(select(_version_table(branch).c.version_num))
    return str(found or "")


def create_models(connection: Connection, models: MetaData) -> None:
    """Create every table and index that is not there."""
    for table in models.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))


def add_columns(connection: Connection, table: Table, *names: str) -> None:
    """Add columns of a model that the database's table lacks."""
    known = {one["name"] for one in inspect(connection).get_columns(table.name)}
    for name in names:
        if name not in known:
            made = CreateColumn(table.c[name]).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {made}")


def _version_table(branch: Branch) -> Table:
    number = Column("version_num", String(_REVISION_LETTERS), primary_key=True)
    return Table(branch.version_table, MetaData(), number)


def _follow_history(connection: Connection, branch: Branch, revision: str) -> None:
    # Alembic loads all of SQLAlchemy's dialects: 0.1 s of a start that has no use for it.
    from alembic import command  # noqa: PLC0415 - measured
    from alembic.config import Config  # noqa: PLC0415 - measured

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    # Alembic loads its environment by path, so what it works on travels in here.
    config.attributes.update(branch=branch, connection=connection)
    with _ONE_AT_A_TIME:
        command.upgrade(config, f"{branch.name}@{revision}")
