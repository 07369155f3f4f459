"""What the engine looks after by itself, because BOINC does not.

- cancellations that BOINC has not taken: its validator writes a workunit's whole state
  back, so a cancellation that came in the middle of a pass is lost and is repeated;
- admissions that end: BOINC knows no date after which no copy may be issued;
- hosts' records that a refusal has cost something;
- questions that the server could not answer;
- files of workunits that nothing needs any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, exists, insert, select, update

from stoilo.core.errors import StoiloError
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import (
    ErrorMask,
    FileDelete,
    ServerState,
    StageState,
    Validate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import Row

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.ending import Endings
    from stoilo.server.engines.stock.nudges import Nudges
    from stoilo.server.engines.stock.tools import Tools

__all__ = ["Chores"]

log = logging.getLogger(__name__)
_AT_ONCE: Final = 200
_ASKED_S: Final = 3600
ADMISSION_MARGIN_S: Final = 5
"""So long before the last moment no copy is issued any more: we look once a second."""


class Chores:
    """The engine's own rounds; each returns whether there was something to do."""

    def __init__(
        self,
        database: Database,
        endings: Endings,
        nudges: Nudges,
        tools: Tools,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._endings = endings
        self._nudges = nudges
        self._tools = tools
        self._now = now

    def cancel(self) -> bool:
        """Tell BOINC of workunits that nobody needs, until it has taken it."""
        table, there = schema.workunits, boinctables.workunits
        query = (
            select(table.c.id, table.c.name)
            .where(table.c.cancelling == 1)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            found = {
                row.id: connection.execute(
                    select(there).where(there.c.name == row.name)
                ).first()
                for row in rows
            }
        for row in rows:
            self.cancel_one(row.id, row.name, found[row.id])
        return bool(rows)

    def cancel_one(self, row: int, name: str, there: Row | None) -> None:  # type: ignore[type-arg]  # BOINC's row
        """Tell BOINC of one workunit; done when BOINC says so or has no use for it."""
        if there is None or _is_over(there):
            table = schema.workunits
            with self._database.write() as connection:
                connection.execute(
                    update(table).where(table.c.id == row).values(cancelling=0)
                )
            return
        if not there.error_mask & ErrorMask.CANCELLED:
            try:
                self._tools.cancel(name)
            except StoiloError as error:
                log.warning("%s is not cancelled yet: %s", name, error)

    def end_admissions(self) -> bool:
        """End workunits that would need a copy beyond their admission."""
        table = schema.workunits
        last = table.c.not_after - table.c.delay_bound_s - ADMISSION_MARGIN_S
        query = (
            select(table.c.id, table.c.boinc_id, table.c.frozen)
            .where(table.c.outcome.is_(None), last < self._now())
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        did = False
        for row in rows:
            if not row.boinc_id or self._may_be_sent(row.boinc_id):
                kind = OutcomeKind.ADMISSION_ENDED
                did |= self._endings.end(row.id, kind, cancel=True)
            elif not row.frozen:
                self._nudges.freeze(row.boinc_id)
                did = True
        return did

    def pay_debts(self) -> bool:
        """Give hosts back what a refusal cost them, once BOINC has taken it."""
        table, copies = schema.verdicts, boinctables.results
        query = select(table).where(table.c.owed == 1).limit(_AT_ONCE)
        with self._database.read() as connection:
            owed = connection.execute(query).all()
            state = {
                row.result: connection.scalar(
                    select(copies.c.validate_state).where(copies.c.name == row.result)
                )
                for row in owed
            }
        taken = [row for row in owed if state[row.result] in {None, Validate.INVALID}]
        for row in taken:
            self._nudges.give_back(
                row.host_id, row.app_version_id, row.jobs_per_day, row.consecutive_valid
            )
            with self._database.write() as connection:
                connection.execute(
                    update(table).where(table.c.result == row.result).values(owed=0)
                )
        return bool(taken)

    def ask_again(self) -> bool:
        """Let BOINC ask about results that the server could not judge."""
        table, own = schema.asks, schema.workunits
        query = (
            select(table.c.workunit_id, own.c.boinc_id, own.c.outcome)
            .join(own, own.c.id == table.c.workunit_id)
            .where(table.c.retry_at <= self._now())
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            if row.outcome is None:
                self._nudges.ask_again(row.boinc_id)
            self._set_aside(row.workunit_id, over=row.outcome is not None)
        return bool(due)

    def close_workunits(self, remove: Callable[[Collection[str]], None]) -> bool:
        """Let go of what no workunit needs any more; `remove` takes files away."""
        table, there = schema.workunits, boinctables.workunits
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
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = list(connection.scalars(query))
        if rows:
            remove(self._drop_needs(rows))
        return bool(rows)

    def _drop_needs(self, rows: list[int]) -> list[str]:
        """Remove workunits' claims on files; returns files that nothing claims now."""
        table, needs = schema.workunits, schema.needs
        other = needs.alias()
        with self._database.write() as connection:
            mine = needs.c.workunit_id.in_(rows)
            files = set(connection.scalars(select(needs.c.file).where(mine)))
            connection.execute(delete(needs).where(mine))
            for questions in (schema.asks, schema.asked):
                connection.execute(
                    delete(questions).where(questions.c.workunit_id.in_(rows))
                )
            connection.execute(
                update(table).where(table.c.id.in_(rows)).values(closed=1)
            )
            used = set(
                connection.scalars(
                    select(other.c.file).where(other.c.file.in_(files)).distinct()
                )
            )
        return sorted(files - used)

    def _may_be_sent(self, boinc_id: int) -> bool:
        """Say whether a copy waits to be sent."""
        table = boinctables.results
        waiting = (ServerState.INACTIVE, ServerState.UNSENT)
        query = select(
            exists().where(
                table.c.workunitid == boinc_id, table.c.server_state.in_(waiting)
            )
        )
        with self._database.read() as connection:
            return bool(connection.scalar(query))

    def _set_aside(self, row: int, *, over: bool) -> None:
        """Forget a question, or put it again should BOINC not."""
        table, asked = schema.asks, schema.asked
        now = self._now()
        with self._database.write() as connection:
            connection.execute(delete(asked).where(asked.c.workunit_id == row))
            if over:
                connection.execute(delete(table).where(table.c.workunit_id == row))
            else:
                connection.execute(
                    update(table)
                    .where(table.c.workunit_id == row)
                    .values(retry_at=now + _ASKED_S)
                )
                connection.execute(insert(asked).values(workunit_id=row, asked_at=now))


def _is_over(there: Row) -> bool:  # type: ignore[type-arg]  # BOINC's row
    """Say whether BOINC has no use for a cancellation any more."""
    return bool(
        there.assimilate_state == StageState.DONE
        or (there.error_mask and there.assimilate_state != StageState.INIT)
    )
