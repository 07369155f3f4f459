"""Counts of the server's own tables: tasks, attempts, events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.core.types import TaskState
from stoilo.server.db import schema
from stoilo.server.db.records import AttemptState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """One moment of the server's tables."""

    tasks: Mapping[str, int]  # by state, every state named
    attempts: Mapping[str, int]  # open ones by state, every open state named
    # s since the oldest attempt of a state was made; 0 for none
    ages: Mapping[str, int]
    events_waiting: int  # events that have no leaf yet


def read_server_figures(connection: Connection, now: int) -> ServerFigures:
    """Return the figures at `now`, s, within one read transaction."""
    task, attempt, event = schema.task, schema.attempt, schema.event
    by_state = select(task.c.state, func.count()).group_by(task.c.state)
    tasks = dict.fromkeys((state.value for state in TaskState), 0)
    tasks |= {row[0]: int(row[1]) for row in connection.execute(by_state)}
    names = [state.value for state in AttemptState if state.open]
    query = (
        select(attempt.c.state, func.count(), func.min(attempt.c.created_at))
        .where(attempt.c.state.in_(names))
        .group_by(attempt.c.state)
    )
    found = {row[0]: row for row in connection.execute(query)}
    waiting = connection.scalar(
        select(func.count()).select_from(event).where(event.c.log_index.is_(None))
    )
    return ServerFigures(
        tasks=tasks,
        attempts={name: int(found[name][1]) if name in found else 0 for name in names},
        ages={
            name: max(0, now - found[name][2]) if name in found else 0 for name in names
        },
        events_waiting=int(waiting or 0),
    )
