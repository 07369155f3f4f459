"""Workunits that end before BOINC would end them: cancelled, or their admission ends.

BOINC's validator writes a workunit's whole state back, so a cancellation that came in the
middle of a pass is lost: BOINC is told until it has taken it. And BOINC knows no date after
which no result may be sent out. Shortly before the last moment at which one could still
come back in time, a workunit with a result to be sent ends, and one that only waits for
results on their way is *frozen*: BOINC may make no further one, and ends it when it would
need one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, exists, or_, select, update

from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_rows import freeze
from stoilo.server.engines.stock.project.boinc_tables import (
    BoincOutcome,
    ErrorMask,
    ServerState,
    StageState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement

    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.results.outcomes import Outcomes


_AT_ONCE: Final = 200  # workunits that are looked at together


class Cancellations:
    """Has BOINC drop workunits that nobody needs, as its own ``cancel_jobs`` does.

    To be called while nothing is being made: what is half made cannot be cancelled.
    Source: BOINC sched/backend_lib.cpp (``cancel_jobs``).
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now

    def tell(self, *which: ColumnElement[bool]) -> bool:
        """Tell BOINC of some; returns whether it was told or has taken any."""
        own, there = tables.workunits, boinc_tables.workunits
        over = or_(
            there.c.assimilate_state == StageState.DONE,
            and_(there.c.error_mask != 0, there.c.assimilate_state != StageState.INIT),
        )
        untold = there.c.error_mask.bitwise_and(ErrorMask.CANCELLED) == 0
        query = (
            select(own.c.id, own.c.boinc_id, there.c.id.label("there"), over)
            # by name: its number may not have been noted yet
            .outerjoin(there, there.c.name == own.c.name)
            .where(own.c.cancelling == 1, *which)
            .where(or_(there.c.id.is_(None), over, untold))
            .order_by(own.c.id)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            found = connection.execute(query).all()
        done = [row for row, _, there, is_over in found if there is None or is_over]
        self._cancel([there for row, _, there, _ in found if row not in done])
        noted = {
            row: there for row, boinc_id, there, _ in found if there and not boinc_id
        }
        with self._database.write() as connection:
            mine = update(own).where(own.c.id.in_(done))
            connection.execute(mine.values(cancelling=0))
            for row, number in noted.items():
                mine = update(own).where(own.c.id == row)
                connection.execute(mine.values(boinc_id=number))
        return bool(found)

    def tell_of(self, rows: Sequence[int]) -> bool:
        """Tell of these workunits of ours now, as far as that is quick."""
        return self.tell(tables.workunits.c.id.in_(rows[:_AT_ONCE]))

    def _cancel(self, numbers: Sequence[int]) -> None:
        """Cancel workunits by BOINC's numbers; may be repeated."""
        workunits, results = boinc_tables.workunits, boinc_tables.results
        waiting = results.c.server_state <= ServerState.UNSENT
        dropped = {
            "server_state": ServerState.OVER,
            "outcome": BoincOutcome.DIDNT_NEED,
        }
        cancelled = {
            "error_mask": workunits.c.error_mask.bitwise_or(ErrorMask.CANCELLED),
            "transition_time": self._now(),
        }
        for query, values in (
            (
                update(results).where(results.c.workunitid.in_(numbers), waiting),
                dropped,
            ),
            (update(workunits).where(workunits.c.id.in_(numbers)), cancelled),
        ):
            with self._database.write() as connection:
                connection.execute(query.values(values))


# So long before the last moment no result is issued any more: we look once a second.
ADMISSION_MARGIN_S: Final = 5


class AdmissionEnds:
    """Ends workunits that would need a result beyond their admission."""

    def __init__(
        self,
        database: Database,
        outcomes: Outcomes,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._outcomes = outcomes
        self._now = now

    def end(self) -> bool:
        """Freeze or end what is due, oldest first; returns whether there was any."""
        due = self._close_issue()
        return self._end_late_results() or due

    def _close_issue(self) -> bool:
        """Let workunits whose last moment is near have no further result."""
        table = tables.workunits
        query = (
            select(table.c.id, table.c.boinc_id)
            .where(
                table.c.outcome.is_(None),
                table.c.frozen == 0,
                table.c.last_at < self._now() + ADMISSION_MARGIN_S,
            )
            .order_by(table.c.last_at)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            if self._may_be_sent(row.boinc_id):
                self._end(row.id)
            else:
                freeze(self._database, row.boinc_id)
        return bool(due)

    def _end_late_results(self) -> bool:
        """End frozen workunits that BOINC gave a result in the moment they were frozen."""
        table = tables.workunits
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
        self._outcomes.end(row, OutcomeKind.ADMISSION_ENDED, cancel=True)

    def _may_be_sent(self, boinc_id: int) -> bool:
        if not boinc_id:
            return True
        with self._database.read() as connection:
            return bool(connection.scalar(select(_waits(boinc_id))))


def _waits(boinc_id: ColumnElement[int] | int) -> ColumnElement[bool]:
    table = boinc_tables.results
    waiting = (ServerState.INACTIVE, ServerState.UNSENT)
    return exists().where(
        table.c.workunitid == boinc_id, table.c.server_state.in_(waiting)
    )
