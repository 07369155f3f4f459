"""What goes when nothing needs it any more: claims on files, then rows, then strays.

A workunit is *closed* when its outcome has been delivered and BOINC has deleted its
files: its claims on input files go then. Its rows stay until BOINC's own row is purged
(``db_purge``), so that nobody finds a workunit of BOINC's without knowing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, exists, select, update

from stoilo.server.db.bulk import select_in
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import FileDelete

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from stoilo.server.engines.stock.project.database import Database


_CLOSED_AT_ONCE: Final = 200
_PURGED_AT_ONCE: Final = 500
# A row lives so long at least: one that BOINC never had is gone from it at once.
_KEPT_S: Final = 86_400


class CleanUp:
    """Lets go of ended workunits."""

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self._purged = 0  # the row of ours that was last looked at

    def close(self, remove: Callable[[Collection[str]], None]) -> bool:
        """Let go of what no workunit needs any more; `remove` takes files away."""
        table, there = tables.workunits, boinc_tables.workunits
        query = (
            select(table.c.id)
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(
                table.c.closed == 0,
                table.c.outcome.is_not(None),
                table.c.undelivered == 0,
                table.c.cancelling == 0,
                there.c.id.is_(None) | (there.c.file_delete_state == FileDelete.DONE),
            )
            .limit(_CLOSED_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = list(connection.scalars(query))
        if rows:
            remove(self._drop_needs(rows))
        return bool(rows)

    def purge(self) -> bool:
        """Remove closed workunits that BOINC has purged; returns whether there were any.

        Each call looks at the next some: BOINC may keep its rows for long.
        """
        table, there = tables.workunits, boinc_tables.workunits
        query = (
            select(table.c.id, table.c.created_at, there.c.id.label("there"))
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(table.c.closed == 1, table.c.id > self._purged)
            .order_by(table.c.id)
            .limit(_PURGED_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        self._purged = rows[-1].id if rows else 0
        old = self._now() - _KEPT_S
        gone = [row.id for row in rows if row.there is None and row.created_at <= old]
        return self._forget(gone) > 0

    def _drop_needs(self, rows: list[int]) -> list[str]:
        """Remove workunits' claims on files; returns files that nothing claims now."""
        table, needs = tables.workunits, tables.needs
        other = needs.alias()
        with self._database.write() as connection:
            mine = needs.c.workunit_id.in_(rows)
            files = set(connection.scalars(select(needs.c.file).where(mine)))
            connection.execute(delete(needs).where(mine))
            connection.execute(
                update(table).where(table.c.id.in_(rows)).values(closed=1)
            )
            used = set(
                connection.scalars(
                    select(other.c.file).where(other.c.file.in_(files)).distinct()
                )
            )
        return sorted(files - used)

    def _forget(self, rows: Sequence[int]) -> int:
        table, results = tables.workunits, tables.results
        owed = exists().where(results.c.workunit_id == table.c.id, results.c.owed == 1)
        query = select(table.c.id).where(
            table.c.id.in_(rows), table.c.closed == 1, ~owed
        )
        with self._database.write() as connection:
            gone = list(connection.scalars(query))
            for part in tables.parts:
                connection.execute(delete(part).where(part.c.workunit_id.in_(gone)))
            connection.execute(delete(table).where(table.c.id.in_(gone)))
        return len(gone)


def stray_outcomes(database: Database, kept: Path) -> list[int]:
    """Return workunits whose kept results nobody waits for any more.

    Those of one that has not ended are just being kept.
    """
    if not kept.is_dir():
        return []
    rows = [int(one.name) for one in kept.iterdir() if one.name.isdecimal()]
    table = tables.workunits
    with database.read() as connection:
        columns = [table.c.id, table.c.outcome, table.c.undelivered]
        found = select_in(connection, columns, table.c.id, rows)
    needed = {row for row, outcome, waits in found if outcome is None or waits}
    return sorted(set(rows) - needed)
