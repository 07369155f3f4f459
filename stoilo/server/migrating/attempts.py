"""Running tasks at a move: their attempts end, and new ones are admitted for the new engine.

A workunit cannot be carried over: its copies' names, upload places and deadlines are the
old engine's. The task can: an attempt is closed and the next one opened, in one
transaction, exactly as when a deadline has passed. What hosts still compute for the old
attempt counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.core.types import TaskState
from stoilo.server.db import rows
from stoilo.server.db.states import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.rows import AttemptName

    AtHome = Callable[[AbstractSet[str]], AbstractSet[str]]
    """Which of these workunits the project has that is left."""

__all__ = ["count_running", "reopen_running"]

BATCH = 256


def count_running(connection: Connection, at_home: AtHome) -> int:
    """Return how many attempts `reopen_running` would begin anew."""
    return sum(len(page) for page in _running(connection, at_home))


def reopen_running(connection: Connection, now: int, at_home: AtHome) -> int:
    """Close the attempts that have a workunit, open the next ones; returns how many.

    `at_home` says which workunits the project has that is left: others are the stock
    project's, where a server has begun to work since an earlier move.
    """
    total = 0
    for page in _running(connection, at_home):
        for name in page:
            found = rows.find_issued(connection, name)
            if found is not None:
                _reopen(connection, *found, now)
        total += len(page)
    return total


def _running(connection: Connection, at_home: AtHome) -> Iterator[list[AttemptName]]:
    """Yield the attempts whose workunit is at home, a page at a time."""
    last = ("", 0)
    while page := rows.issued_after(connection, last, BATCH):
        last = (page[-1].task_id, page[-1].number)
        known = at_home({one.workunit for one in page})
        yield [one for one in page if one.workunit in known]


def _reopen(
    connection: Connection, attempt: AttemptRow, task: TaskRow, now: int
) -> None:
    rows.move_attempts(connection, [attempt], AttemptState.CLOSED)
    if task.state.final or task.attempt != attempt.number:
        return
    if task.state is TaskState.RUNNING:
        rows.move_task(connection, task, TaskState.ADMITTING, now)
    rows.add_attempt(connection, task, now)
