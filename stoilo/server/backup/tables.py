"""A branch's tables from one database into another: MariaDB into a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    MetaData,
    Table,
    column,
    delete,
    insert,
    select,
    table,
    text,
)
from sqlalchemy.schema import DropTable

from stoilo.server.db.store import SERVER, begin_writing, open_engine, upgrade
from stoilo.server.engines.embedded.db.database import ENGINE
from stoilo.server.migrations import read_revision

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.migrations import Branch


# Branches that lie in files at home, and where.
FILES: Final = {"server": "server.sqlite", "engine": "engine/engine.sqlite"}
BRANCHES: Final = {branch.name: branch for branch in (SERVER, ENGINE)}
_ROWS: Final = 16  # held in memory together: one may have megabytes


def copy_tables(source: Connection, url: str, branch: Branch) -> None:
    """Make the branch's tables behind `url`, where there are none, with all rows of `source`.

    Raises:
        SQLAlchemyError: a database refuses; tables without rows may be left.
    """
    upgrade(url, branch, read_revision(source, branch))
    engine = open_engine(url)
    try:
        with begin_writing(engine, branch) as target:
            # rows may come before what they point to
            _check_references(target, checked=False)
            for model in branch.models.sorted_tables:
                _copy_rows(source, target, model)
            _check_references(target, checked=True)
    finally:
        engine.dispose()


def _copy_rows(source: Connection, target: Connection, model: Table) -> None:
    # without the columns' types: what one driver reads the other writes as it is
    plain = table(model.name, *(column(one.name) for one in model.columns))
    target.execute(delete(plain))
    streaming = source.execution_options(stream_results=True)
    for rows in streaming.execute(select(plain)).mappings().partitions(_ROWS):
        target.execute(insert(plain), [dict(row) for row in rows])


def drop_tables(connection: Connection, branch: Branch) -> None:
    """Remove the branch's tables."""
    _check_references(connection, checked=False)
    version = Table(branch.version_table, MetaData())
    for model in (version, *reversed(branch.models.sorted_tables)):
        connection.execute(DropTable(model, if_exists=True))


def _check_references(connection: Connection, *, checked: bool) -> None:
    """Have this session's references checked or not (MariaDB)."""
    if connection.dialect.name in {"mysql", "mariadb"}:
        connection.execute(text(f"SET SESSION foreign_key_checks = {int(checked)}"))
