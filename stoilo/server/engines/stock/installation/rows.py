"""The steps of an installation that change rows of the project's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from stoilo.core.errors import InternalError
from stoilo.server.db.outages import cause_of
from stoilo.server.engines.stock.installation.preferences import mark_preferences

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["UNMARKED", "mark_accounts", "retire_versions"]

UNMARKED: Final = (
    "user WHERE instr(project_prefs, '</project_specific>') > 0"
    " AND instr(project_prefs, '<max_level>') > 0"
    " AND instr(project_prefs, '<stoilo_work>') = 0"
)
"""Accounts whose preferences were saved before the page wrote ``<stoilo_work>``."""

_RETIRE: Final = text(
    "UPDATE app_version SET deprecated = 1 WHERE id IN :rows"
).bindparams(bindparam("rows", expanding=True))
_SAVE: Final = text(
    "UPDATE user SET project_prefs = :saved WHERE id = :id AND project_prefs = :was"
)


def retire_versions(database_url: str, rows: tuple[int, ...]) -> None:
    """Mark app versions as deprecated, as BOINC's own pages do; raises ``STO-B025``."""
    engine = create_engine(database_url)
    try:
        with engine.begin() as connection:
            connection.execute(_RETIRE, {"rows": rows})
    except SQLAlchemyError as error:
        raise InternalError(
            "STO-B025", f"app versions could not be retired: {cause_of(error)}"
        ) from error
    finally:
        engine.dispose()


def mark_accounts(database_url: str) -> None:
    """Mark the preferences of the accounts `UNMARKED`; raises ``STO-B025``.

    One that its owner saves meanwhile stays as he saved it.
    """
    engine = create_engine(database_url)
    try:
        with engine.begin() as connection:
            _mark(connection)
    except SQLAlchemyError as error:
        raise InternalError(
            "STO-B025", f"accounts' preferences could not be marked: {cause_of(error)}"
        ) from error
    finally:
        engine.dispose()


def _mark(connection: Connection) -> None:
    query = f"SELECT id, project_prefs FROM {UNMARKED}"  # noqa: S608 - our own words
    for row, was in connection.execute(text(query)).all():
        raw = was if isinstance(was, bytes) else str(was).encode()
        saved = mark_preferences(raw.decode("utf-8", "surrogateescape"))
        data = saved.encode("utf-8", "surrogateescape")
        made = data if isinstance(was, bytes) else data.decode()
        connection.execute(_SAVE, {"saved": made, "id": row, "was": was})
