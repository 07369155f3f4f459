"""Counts of a stock project's tables, for `stoilo.server.watching`.

BOINC's table of results holds those of months, so only results of open workunits of ours
are counted, and not for everybody who asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from stoilo.server.engines.interface import EngineFigures, ResultOutcome, ResultProgress
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import (
    BoincOutcome,
    ServerState,
    Validate,
)
from stoilo.server.engines.stock.outcomes import copy_outcome, copy_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Select

    from stoilo.server.engines.stock.database import Database

__all__ = ["Figures", "read_figures"]

WITHIN_S: Final = {"10m": 600, "1d": 86_400}
COUNTED_S: Final = 60
"""How long a count is told, s."""

_WAITING: Final = (ServerState.INACTIVE, ServerState.UNSENT)


class Figures:
    """The figures of one project, at most `COUNTED_S` old; thread-safe."""

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self._counting = threading.Lock()
        self._counted: EngineFigures | None = None
        self._at = 0

    def read(self) -> EngineFigures:
        """Return them; who comes while they are counted waits for that count."""
        with self._counting:
            now = self._now()
            if self._counted is None or now >= self._at + COUNTED_S:
                with self._database.read() as connection:
                    self._counted, self._at = read_figures(connection, now), now
            return self._counted


def read_figures(connection: Connection, now: int) -> EngineFigures:
    """Return the project's figures at `now`, s; BOINC bans no hosts for us."""
    own, results, hosts = schema.workunits, boinctables.results, boinctables.hosts
    unsent = _of_open(func.min(own.c.created_at)).where(
        results.c.server_state.in_(_WAITING)
    )
    fresh = _of_open(func.count(), func.min(results.c.received_time)).where(
        results.c.server_state == ServerState.OVER,
        results.c.outcome == BoincOutcome.SUCCESS,
        results.c.validate_state == Validate.INIT,
    )
    waiting, oldest = connection.execute(fresh).one()
    return EngineFigures(
        workunits=_count(connection, _rows(own.c.outcome.is_(None))),
        results=_copies(connection),
        unsent_age_s=_age(now, connection.scalar(unsent)),
        to_validate=waiting,
        to_validate_age_s=_age(now, oldest),
        outcomes_waiting=_count(connection, _rows(own.c.undelivered == 1)),
        accounts=_count(
            connection, select(func.count()).select_from(boinctables.users)
        ),
        hosts={
            words: _count(connection, _rows(hosts.c.rpc_time >= now - seconds))
            for words, seconds in WITHIN_S.items()
        },
        hosts_banned=0,
    )


def _copies(connection: Connection) -> dict[tuple[str, str], int]:
    """Return how many copies are in each state, in our words."""
    table = boinctables.results
    state, outcome = table.c.server_state, table.c.outcome
    key = (state, outcome, table.c.validate_state)
    counts: Counter[tuple[str, str]] = Counter()
    query = _of_open(*key, func.count().label("n")).group_by(*key)
    for row in connection.execute(query):
        where = copy_state(row.server_state)
        ended = ResultOutcome.NONE
        if where is ResultProgress.OVER:
            ended = copy_outcome(row.outcome, row.validate_state, 0)
        counts[where.value, ended.value] += row.n
    return dict(counts)


def _of_open(*columns: ColumnElement[Any]) -> Select[Any]:
    """Return a query over the results of open workunits of ours."""
    own, results = schema.workunits, boinctables.results
    return (
        select(*columns)
        .select_from(own)
        .join(results, results.c.workunitid == own.c.boinc_id)
        .where(own.c.outcome.is_(None), own.c.boinc_id != 0)
    )


def _rows(condition: object) -> Select[int]:
    return select(func.count()).where(condition)  # type: ignore[arg-type]  # a column's condition


def _count(connection: Connection, query: Select[int]) -> int:
    return int(connection.scalar(query) or 0)


def _age(now: int, since: int | None) -> int:
    return 0 if since is None else max(0, now - since)
