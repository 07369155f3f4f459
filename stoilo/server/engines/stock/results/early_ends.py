"""Workunits that end before BOINC would end them: cancelled, or their admission ends.

BOINC's validator writes a workunit's whole state back, so a cancellation that came in the
middle of a pass is lost: it is told until BOINC has taken it. And BOINC knows no date after
which no result may be sent out. Shortly before the last moment at which one could still
come back in time, a workunit with a result to be sent ends, and one that only waits for
results on their way is *frozen*: BOINC may make no further one, and ends it when it would
need one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, exists, or_, select, update

from stoilo.core.errors import StoiloError
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_rows import freeze
from stoilo.server.engines.stock.project.boinc_tables import (
    ErrorMask,
    ServerState,
    StageState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Row, Select

    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.project.directory import Tools
    from stoilo.server.engines.stock.results.outcomes import Outcomes


log = logging.getLogger(__name__)
# Workunits looked at together.
_AT_ONCE: Final = 1000

# Each is a process of BOINC's; making workunits waits for them.
_CALLS: Final = 20

# After a failure of the tool, or a call that changed nothing.
_PAUSE_S: Final = 10

_UNTOLD: Final = (
    boinc_tables.workunits.c.error_mask.bitwise_and(ErrorMask.CANCELLED) == 0
)


class Cancellations:
    """Tells BOINC of workunits that nobody needs.

    To be called while nothing is being made: what is half made cannot be cancelled.
    """

    def __init__(
        self, database: Database, tools: Tools, now: Callable[[], int]
    ) -> None:
        self._database = database
        self._tools = tools
        self._now = now
        self._pause_until = 0
        self._seen = 0  # the row of ours that was last looked at

    def tell(self) -> bool:
        """Tell of some; returns whether BOINC was told or has taken any.

        After a failure others come first, some seconds later.
        """
        if self._now() < self._pause_until:
            return False
        rows = self._read(tables.workunits.c.id > self._seen)
        if not rows and self._seen:
            self._seen = 0
            rows = self._read()
        return self._tell(rows)

    def tell_of(self, rows: Sequence[int]) -> bool:
        """Tell of these workunits now, as far as that is quick."""
        return self._tell(self._read(tables.workunits.c.id.in_(rows[:_AT_ONCE])))

    def _tell(self, rows: Sequence[Row]) -> bool:  # type: ignore[type-arg]  # of `_query`
        over = [row.id for row in rows if row.there is None or row.over]
        self._note(over, cancelling=0)
        told = bool(over)
        for run in _runs([row for row in rows if row.id not in over])[:_CALLS]:
            self._seen = run[-1].id
            if not self._cancel(run):
                self._pause_until = self._now() + _PAUSE_S
                return told
            told = True
        return told

    def _cancel(self, run: Sequence[Row]) -> bool:  # type: ignore[type-arg]  # of `_query`
        name, first, last = run[0].name, run[0].there, run[-1].there
        try:
            self._tools.cancel(first, last)
        except StoiloError as error:
            log.warning("%s is not cancelled yet: %s", name, error)
            return False
        with self._database.read() as connection:
            untold = connection.scalar(_untold(first, last))
        if untold is not None:  # some of BOINC's programs print errors and exit with 0
            log.warning("%s is not cancelled yet: cancel_jobs changed nothing", name)
        return untold is None

    def _read(self, *which: ColumnElement[bool]) -> list[Row]:  # type: ignore[type-arg]  # of `_query`
        """Return what needs something; BOINC's number of each is written down."""
        with self._database.read() as connection:
            unknown = connection.execute(_unknown(*which)).all()
            found = {row.id: connection.scalar(_number(row.name)) for row in unknown}
        for row, number in found.items():
            self._note([row], **({"boinc_id": number} if number else {"cancelling": 0}))
        with self._database.read() as connection:
            return list(connection.execute(_query(*which)).all())

    def _note(self, rows: Sequence[int], **values: int) -> None:
        table = tables.workunits
        if rows:
            with self._database.write() as connection:
                which = table.c.id.in_(rows)
                connection.execute(update(table).where(which).values(**values))


def _runs(rows: Sequence[Row]) -> list[list[Row]]:  # type: ignore[type-arg]  # of `_query`
    """Return rows in runs of BOINC's numbers without a gap: between them is no other's."""
    runs: list[list[Row]] = []  # type: ignore[type-arg]  # of `_query`
    for row in rows:
        if runs and row.there == runs[-1][-1].there + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _query(*which: ColumnElement[bool]) -> Select:  # type: ignore[type-arg]  # columns of two tables
    table, there = tables.workunits, boinc_tables.workunits
    over = or_(
        there.c.assimilate_state == StageState.DONE,
        and_(there.c.error_mask != 0, there.c.assimilate_state != StageState.INIT),
    )
    return (
        select(table.c.id, table.c.name, there.c.id.label("there"), over.label("over"))
        .outerjoin(there, there.c.id == table.c.boinc_id)
        .where(table.c.cancelling == 1, table.c.boinc_id != 0, *which)
        .where(or_(there.c.id.is_(None), over, _UNTOLD))
        .order_by(table.c.id)
        .limit(_AT_ONCE)
    )


def _unknown(*which: ColumnElement[bool]) -> Select:  # type: ignore[type-arg]  # two columns
    table = tables.workunits
    return (
        select(table.c.id, table.c.name)
        .where(table.c.cancelling == 1, table.c.boinc_id == 0, *which)
        .order_by(table.c.id)
        .limit(_AT_ONCE)
    )


def _number(name: str) -> Select[int]:
    table = boinc_tables.workunits
    return select(table.c.id).where(table.c.name == name)


def _untold(first: int, last: int) -> Select[int]:
    table = boinc_tables.workunits
    return select(table.c.id).where(table.c.id.between(first, last), _UNTOLD).limit(1)


_DUE_AT_ONCE: Final = 200
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
            .limit(_DUE_AT_ONCE)
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
            .limit(_DUE_AT_ONCE)
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
