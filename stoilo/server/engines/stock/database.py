"""The stock engine's database: BOINC's own, with our tables beside BOINC's."""

from __future__ import annotations

from stoilo.server.engines.database import EngineDatabase
from stoilo.server.engines.stock.schema import metadata
from stoilo.server.migrations import Branch

__all__ = ["STOCK", "Database"]

STOCK = Branch("stock", "stoilo_version", metadata)


class Database(EngineDatabase):
    """The project's database behind `url` (SQLAlchemy form)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, STOCK)
