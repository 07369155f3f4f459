"""The embedded engine's database: which tables, and one door to them."""

from __future__ import annotations

from stoilo.server.engines.database import EngineDatabase
from stoilo.server.engines.embedded.schema import metadata
from stoilo.server.migrations import Branch

__all__ = ["ENGINE", "Database"]

ENGINE = Branch("engine", "engine_version", metadata)


class Database(EngineDatabase):
    """The engine's database behind `url` (SQLAlchemy form)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, ENGINE)
