"""Running tasks at a move: their attempts end, and new ones are admitted for the new engine.

A workunit cannot be carried over: its copies' names, upload places and deadlines are the
old engine's. The task can: an attempt is closed and the next one opened, in one
transaction, exactly as when a deadline has passed. What hosts still compute for the old
attempt counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.core.types import TaskState
from stoilo.server import rows, schema
from stoilo.server.states import AttemptState

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["count_running", "reopen_running"]

BATCH = 256


def count_running(connection: Connection) -> int:
    """Return how many attempts have a workunit that has not ended."""
    table = schema.attempt
    state = AttemptState.ISSUED.value
    query = select(func.count()).select_from(table).where(table.c.state == state)
    return int(connection.scalar(query) or 0)


def reopen_running(connection: Connection, now: int) -> int:
    """Close the attempts that have a workunit, open the next ones; returns how many."""
    total = 0
    while found := rows.attempts_in(connection, AttemptState.ISSUED, BATCH):
        rows.move_attempts(
            connection, [attempt for attempt, _ in found], AttemptState.CLOSED
        )
        for attempt, task in found:
            if task.state.final or task.attempt != attempt.number:
                continue
            if task.state is TaskState.RUNNING:
                rows.move_task(connection, task, TaskState.ADMITTING, now)
            rows.add_attempt(connection, task, now)
        total += len(found)
    return total
