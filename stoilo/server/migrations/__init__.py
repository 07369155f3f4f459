"""Alembic history of the server's and both engines' tables: one tree, three branches.

Each database has its own branch, models and version table, so that they may also lie in
one MariaDB, the stock engine's beside BOINC's. A new revision: ``versions/NNNN_*.py`` with
``down_revision`` the last one of its branch, each statement such that it can be repeated;
`tests/server/test_migrations.py` says whether it makes what the models say, also when it
is killed in the middle.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

if TYPE_CHECKING:
    from sqlalchemy import Connection, MetaData

__all__ = ["Branch", "migrate", "newest_revision", "render_upgrade"]

_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it works on in its modules."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The history of one database.

    Attributes:
        name: label of the branch's first revision.
        version_table: where a database notes how far it is.
        models: what the newest revision makes.
    """

    name: str
    version_table: str
    models: MetaData


def migrate(connection: Connection, branch: Branch, revision: str = "head") -> None:
    """Bring the database of a writing transaction to a revision of `branch`.

    All or nothing on SQLite. MariaDB commits with every statement that changes a table;
    so each step makes what is not there and drops what is, and an upgrade that was cut
    off goes on at the next start.

    Raises:
        SQLAlchemyError: the database refuses.
    """
    with _ONE_AT_A_TIME:
        config = _config(branch)
        # Alembic loads its environment by path, so what it works on travels in here.
        config.attributes["connection"] = connection
        command.upgrade(config, f"{branch.name}@{revision}")


def newest_revision(branch: Branch) -> str:
    """Return the name of the branch's last revision."""
    scripts = ScriptDirectory.from_config(_config(branch))
    return str(scripts.as_revision_number(f"{branch.name}@head"))


def render_upgrade(dialect: str, branch: Branch, output: TextIO) -> None:
    """Write the SQL of the whole branch for a dialect (``mariadb``); touches nothing."""
    config = _config(branch)
    config.attributes["dialect"] = dialect
    config.output_buffer = output
    with _ONE_AT_A_TIME:
        command.upgrade(config, f"{branch.name}@head", sql=True)


def _config(branch: Branch) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["branch"] = branch
    return config
