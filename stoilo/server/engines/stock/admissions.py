"""Admissions that end: BOINC knows no date after which no copy may be issued.

Shortly before the last moment at which a copy could still come back in time, a workunit
with a copy to be sent ends, and one that only waits for copies on their way is *frozen*:
BOINC may make no further one, and ends it when it would need one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, exists, select

from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.ending import Endings
    from stoilo.server.engines.stock.nudges import Nudges

__all__ = ["Admissions"]

_AT_ONCE: Final = 200
ADMISSION_MARGIN_S: Final = 5
"""So long before the last moment no copy is issued any more: we look once a second."""


class Admissions:
    """Ends workunits that would need a copy beyond their admission."""

    def __init__(
        self,
        database: Database,
        endings: Endings,
        nudges: Nudges,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._endings = endings
        self._nudges = nudges
        self._now = now

    def end(self) -> bool:
        """Freeze or end what is due, oldest first; returns whether there was any."""
        due = self._close_issue()
        return self._end_late_copies() or due

    def _close_issue(self) -> bool:
        """Let workunits whose last moment is near have no further copy."""
        table, own = schema.issuing, schema.workunits
        query = (
            select(own.c.id, own.c.boinc_id, own.c.outcome)
            .join(table, table.c.workunit_id == own.c.id)
            .where(table.c.last_at < self._now() + ADMISSION_MARGIN_S)
            .order_by(table.c.last_at)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            if row.outcome is None and self._may_be_sent(row.boinc_id):
                self._end(row.id)
            elif row.outcome is None:
                self._nudges.freeze(row.boinc_id)
            self._note_closed(row.id)
        return bool(due)

    def _end_late_copies(self) -> bool:
        """End frozen workunits that BOINC gave a copy in the moment they were frozen."""
        table = schema.workunits
        query = (
            select(table.c.id)
            .where(
                table.c.outcome.is_(None),
                table.c.frozen == 1,
                table.c.boinc_id != 0,
                _waits(table.c.boinc_id),
            )
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            late = list(connection.scalars(query))
        for row in late:
            self._end(row)
        return bool(late)

    def _end(self, row: int) -> None:
        self._endings.end(row, OutcomeKind.ADMISSION_ENDED, cancel=True)

    def _may_be_sent(self, boinc_id: int) -> bool:
        """Say whether a copy waits to be sent, or is yet to be made."""
        if not boinc_id:
            return True
        with self._database.read() as connection:
            return bool(connection.scalar(select(_waits(boinc_id))))

    def _note_closed(self, row: int) -> None:
        table = schema.issuing
        with self._database.write() as connection:
            connection.execute(delete(table).where(table.c.workunit_id == row))


def _waits(boinc_id: ColumnElement[int] | int) -> ColumnElement[bool]:
    """Return whether a workunit of BOINC's has a copy that nobody has yet."""
    table = boinctables.results
    waiting = (ServerState.INACTIVE, ServerState.UNSENT)
    return exists().where(
        table.c.workunitid == boinc_id, table.c.server_state.in_(waiting)
    )
