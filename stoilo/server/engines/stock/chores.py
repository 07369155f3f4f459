"""What the engine looks after by itself, because BOINC does not.

- hosts' records that a refusal has cost something;
- questions that the server could not answer, or not yet.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select, update

from stoilo.core.errors import StoiloError
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import Validate
from stoilo.server.engines.stock.verdictrows import hasten

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.nudges import Nudges

__all__ = ["Chores"]

_AT_ONCE: Final = 200
_ASKED_S: Final = 3600


class Chores:
    """The engine's own rounds; each returns whether there was something to do.

    Attributes:
        told: names of workunits of which there is more to say.
    """

    def __init__(
        self,
        database: Database,
        nudges: Nudges,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._nudges = nudges
        self._now = now
        self.told: SimpleQueue[str] = SimpleQueue()

    def hear_answers(self) -> bool:
        """Have questions put anew whose validators have run, as `told`."""
        count = min(self.told.qsize(), _AT_ONCE)
        names = {self.told.get() for _ in range(count)}
        if not names:
            return False
        try:
            with self._database.write() as connection:
                hasten(connection, names)
        except StoiloError:  # the database is away; the names are not
            for name in names:
                self.told.put(name)
            raise
        return True

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
