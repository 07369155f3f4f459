"""Counts of a stock project's tables, for `stoilo.server.watching`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from stoilo.server.engines.figures import EngineFigures
from stoilo.server.engines.interface import CopyOutcome, CopyState
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import (
    BoincOutcome,
    ServerState,
    Validate,
)
from stoilo.server.engines.stock.outcomes import copy_outcome, copy_state

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

__all__ = ["read_figures"]

WITHIN_S: Final = {"10m": 600, "1d": 86_400}
_WAITING: Final = (ServerState.INACTIVE, ServerState.UNSENT)


def read_figures(connection: Connection, now: int) -> EngineFigures:
    """Return the project's figures at `now`, s; BOINC bans no hosts for us."""
    own, results, hosts = schema.workunits, boinctables.results, boinctables.hosts
    unsent = (
        select(func.min(own.c.created_at))
        .join(results, results.c.workunitid == own.c.boinc_id)
        .where(own.c.outcome.is_(None), results.c.server_state.in_(_WAITING))
    )
    fresh = select(func.count(), func.min(results.c.received_time)).where(
        results.c.server_state == ServerState.OVER,
        results.c.outcome == BoincOutcome.SUCCESS,
        results.c.validate_state == Validate.INIT,
    )
    waiting, oldest = connection.execute(fresh).one()
    return EngineFigures(
        workunits=_count(connection, _rows(own.c.outcome.is_(None))),
        copies=_copies(connection),
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
    for row in connection.execute(select(*key, func.count().label("n")).group_by(*key)):
        where = copy_state(row.server_state)
        ended = CopyOutcome.NONE
        if where is CopyState.OVER:
            ended = copy_outcome(row.outcome, row.validate_state, 0)
        counts[where.value, ended.value] += row.n
    return dict(counts)


def _rows(condition: object) -> Select[int]:
    return select(func.count()).where(condition)  # type: ignore[arg-type]  # a column's condition


def _count(connection: Connection, query: Select[int]) -> int:
    return int(connection.scalar(query) or 0)


def _age(now: int, since: int | None) -> int:
    return 0 if since is None else max(0, now - since)
