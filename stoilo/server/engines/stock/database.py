"""The stock engine's database: BOINC's own, with our tables beside BOINC's."""

from __future__ import annotations

from typing import Final

from stoilo.server.engines.database import EngineDatabase
from stoilo.server.engines.stock.schema import metadata
from stoilo.server.migrations import Branch

__all__ = ["PACKET_BYTES", "STOCK", "Database"]

PACKET_BYTES: Final = 4 * 1024 * 1024
"""Less than MariaDB's own default: no file of ours lies in these tables."""

STOCK = Branch("stock", "stoilo_version", metadata)


class Database(EngineDatabase):
    """The project's database behind `url` (SQLAlchemy form)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, STOCK, PACKET_BYTES)
