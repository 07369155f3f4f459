"""What a crash has left on the disk and no row knows: looked for at each start.

Files are written before the rows that name them, and rows go before the files that they
named; a process that dies in between leaves a file to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.db.bulk import select_in
from stoilo.server.engines.stock import schema

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from stoilo.server.engines.stock.database import Database

__all__ = ["stray_files", "stray_outcomes"]


def stray_files(database: Database, names: Collection[str]) -> set[str]:
    """Return which of these input files no workunit claims."""
    table = schema.needs
    with database.read() as connection:
        found = select_in(connection, [table.c.file], table.c.file, names)
    return set(names) - {file for (file,) in found}


def stray_outcomes(database: Database, kept: Path) -> list[int]:
    """Return workunits whose kept results nobody waits for any more.

    Those of one that has not ended are just being kept.
    """
    if not kept.is_dir():
        return []
    rows = [int(one.name) for one in kept.iterdir() if one.name.isdecimal()]
    table = schema.workunits
    with database.read() as connection:
        columns = [table.c.id, table.c.outcome, table.c.undelivered]
        found = select_in(connection, columns, table.c.id, rows)
    needed = {row for row, outcome, waits in found if outcome is None or waits}
    return sorted(set(rows) - needed)
