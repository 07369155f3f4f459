"""Counts of the embedded engine's tables, for `stoilo.server.watching`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.records import Validity
from stoilo.server.engines.figures import EngineFigures
from stoilo.server.engines.interface import CopyOutcome, CopyState

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

__all__ = ["read_figures"]

WITHIN_S: Final = {"10m": 600, "1d": 86_400}


def read_figures(connection: Connection, now: int) -> EngineFigures:
    """Return the engine's figures at `now`, s, within one read transaction."""
    copies, workunits = schema.copies, schema.workunits
    by_state = select(copies.c.state, copies.c.outcome, func.count())
    unsent = (
        select(func.min(workunits.c.created_at))
        .join(copies, copies.c.workunit_id == workunits.c.id)
        .where(copies.c.state == CopyState.UNSENT.value)
    )
    fresh = (
        select(func.count(), func.min(copies.c.received_at))
        .where(copies.c.state == CopyState.OVER.value)
        .where(copies.c.outcome == CopyOutcome.SUCCESS.value)
        .where(copies.c.validity == Validity.INIT.value)
    )
    waiting, oldest = connection.execute(fresh).one()
    grouped = by_state.group_by(copies.c.state, copies.c.outcome)
    hosts = schema.hosts
    return EngineFigures(
        workunits=_count(
            connection,
            select(func.count())
            .select_from(workunits)
            .where(workunits.c.outcome.is_(None)),
        ),
        copies={
            (state, outcome): count
            for state, outcome, count in connection.execute(grouped)
        },
        unsent_age_s=_age(now, connection.scalar(unsent)),
        to_validate=waiting,
        to_validate_age_s=_age(now, oldest),
        outcomes_waiting=_count(
            connection, select(func.count()).select_from(schema.outbox)
        ),
        accounts=_count(connection, select(func.count()).select_from(schema.users)),
        hosts={
            words: _count(
                connection,
                select(func.count())
                .select_from(hosts)
                .where(hosts.c.seen_at >= now - seconds),
            )
            for words, seconds in WITHIN_S.items()
        },
        hosts_banned=_count(connection, select(func.count()).select_from(schema.bans)),
    )


def _count(connection: Connection, query: Select[int]) -> int:
    return int(connection.scalar(query) or 0)


def _age(now: int, since: int | None) -> int:
    return 0 if since is None else max(0, now - since)
