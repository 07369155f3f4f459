"""Outcomes to the server, once each unless the process dies in between, oldest first.

The server may be busy or away: an outcome that it does not take waits, and comes again.
One whose kept results are gone (a dump of the project's tables taken before its files
were copied) can never be taken: after some tries it is told as an admission's end, so
that the work is done again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, select, update

from stoilo.server.engines.interface import NotDecidedYet, OutcomeKind
from stoilo.server.engines.stock import schema
from stoilo.server.engines.stock.ending import read_outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Row

    from stoilo.server.engines.interface import Assimilator, WorkunitOutcome
    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.ending import Endings

__all__ = ["Delivery"]

log = logging.getLogger(__name__)
_AT_ONCE: Final = 64
_LONGEST_WAIT_S: Final = 30
_LOST_TRIES: Final = 8
"""After so many tries, about a minute and a half, a file that is gone stays gone."""


class Delivery:
    """Tells the server of ended workunits until it has taken them."""

    def __init__(
        self, database: Database, endings: Endings, now: Callable[[], int]
    ) -> None:
        self._database = database
        self._endings = endings
        self._now = now

    def deliver(self, assimilator: Assimilator) -> bool:
        """Deliver what is due; returns whether anything was tried."""
        table = schema.workunits
        query = (
            select(table)
            .where(table.c.undelivered == 1, table.c.retry_at <= self._now())
            .order_by(table.c.retry_at, table.c.id)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            self._tell(row, assimilator)
        return bool(due)

    def retry_all(self) -> None:
        """Make everything undelivered due: a start is a new chance."""
        table = schema.workunits
        with self._database.write() as connection:
            connection.execute(
                update(table).where(table.c.undelivered == 1).values(retry_at=0)
            )

    def _tell(self, row: Row, assimilator: Assimilator) -> None:  # type: ignore[type-arg]  # a row of `workunits`
        with self._database.read() as connection:
            outcome = read_outcome(connection, row, self._endings)
        if row.attempts >= _LOST_TRIES and _is_lost(outcome):
            log.error("results of %s are gone: to be computed again", row.name)
            kind = OutcomeKind.ADMISSION_ENDED
            outcome = replace(outcome, kind=kind, canonical=None, valid=())
        try:
            assimilator.assimilate(outcome)
        except NotDecidedYet:
            self._postpone(row)
            return
        except Exception:  # the server's trouble must not stop the engine
            log.exception("the outcome of %s was not taken", row.name)
            self._postpone(row)
            return
        table, kept = schema.workunits, schema.kept_results
        with self._database.write() as connection:
            connection.execute(
                update(table).where(table.c.id == row.id).values(undelivered=0)
            )
            connection.execute(delete(kept).where(kept.c.workunit_id == row.id))
        self._endings.forget(row.id)

    def _postpone(self, row: Row) -> None:  # type: ignore[type-arg]  # a row of `workunits`
        table = schema.workunits
        wait = min(2 ** min(row.attempts, 10), _LONGEST_WAIT_S)
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.id == row.id)
                .values(retry_at=self._now() + wait, attempts=row.attempts + 1)
            )


def _is_lost(outcome: WorkunitOutcome) -> bool:
    """Say whether a result that an outcome rests on is gone."""
    return not all(one.path.exists() for one in outcome.valid)
