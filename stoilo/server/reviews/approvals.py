"""What reviewers have signed before: for a task, and for earlier sources of its submitter.

Read from the stored reviews, each opened again: what a withdrawn reviewer signed is no
approval any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.server.db import rows, schema
from stoilo.server.reviews.book import try_open

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from stoilo.executor.verifier.statements import OpenedReview
    from stoilo.executor.verifier.targets import Reviewer
    from stoilo.server.db.records import TaskRow

LOOKED_BACK: Final = 500  # of a submitter's newest tasks, for the last approved source
MOST_READ: Final = 200  # reviews of one question, newest first


@dataclass(frozen=True, slots=True)
class Approval:
    """A review that holds, and where the log tells of it."""

    opened: OpenedReview
    at: int  # when it was handed in, s since 1970
    log_index: int | None  # of its leaf, None before it has one


@dataclass(frozen=True, slots=True)
class Earlier:
    """The source of the same function that was approved last, of the same submitter."""

    task_id: str
    at: int  # when its review was handed in, s since 1970
    source: bytes | None  # hostile; None once retention has deleted it


def find_approvals(
    connection: Connection,
    modules: Collection[str],  # digests of task modules
    reviewers: Sequence[Reviewer],  # whom the release names now
) -> list[Approval]:
    """Return the reviews of these sources that hold, the newest first."""
    table, event = schema.review, schema.event
    named = event.c.key == "review:" + table.c.digest
    query = (
        select(table.c.envelope, table.c.created_at, event.c.log_index)
        .outerjoin(event, named)
        .where(table.c.task_module.in_(list(modules)))
        .order_by(table.c.id.desc())
        .limit(MOST_READ)
    )
    return [
        Approval(opened, row.created_at, row.log_index)
        for row in connection.execute(query)
        if (opened := try_open(bytes(row.envelope), reviewers)) is not None
    ]


def find_earlier(
    connection: Connection, task: TaskRow, reviewers: Sequence[Reviewer]
) -> Earlier | None:
    """Return what was approved last of `task`'s function and submitter, None for nothing."""
    known: dict[str, str] = {}  # task module → newest of the other tasks that has it
    for one in rows.list_tasks(connection, task.account_id, (), LOOKED_BACK):
        if one.spec.entry == task.spec.entry and one.task_id != task.task_id:
            known.setdefault(one.spec.task_module, one.task_id)
    for found in find_approvals(connection, known, reviewers):
        module = found.opened.review.task_module
        source = rows.load_contents(connection, {module}).get(module)
        return Earlier(known[module], found.at, source)
    return None
