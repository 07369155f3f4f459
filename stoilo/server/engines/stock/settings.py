"""The engine's few words to itself in ``stoilo_setting``: secret, owner, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from stoilo.server.engines.stock import schema

if TYPE_CHECKING:
    from stoilo.server.engines.stock.database import Database

__all__ = ["Settings"]


class Settings:
    """Values by name; each method raises ``STO-E003`` when the database refuses."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> str:
        """Return a value, empty where there is none."""
        table = schema.settings
        with self._database.read() as connection:
            found = connection.scalar(select(table.c.value).where(table.c.name == name))
        return str(found or "")

    def write(self, name: str, value: str, *, replace: bool = True) -> None:
        """Store a value durably; without `replace` one that is there stays."""
        table = schema.settings
        with self._database.write() as connection:
            known = connection.scalar(select(table.c.value).where(table.c.name == name))
            if known == value or (known is not None and not replace):
                return
            connection.execute(delete(table).where(table.c.name == name))
            connection.execute(insert(table).values(name=name, value=value))
