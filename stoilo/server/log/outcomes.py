"""The one place where a task becomes final (I6): outcome row and state, together."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.digests import content_digest
from stoilo.server.db import rows
from stoilo.server.log.outbox import note_events, outcome_event
from stoilo.server.log.public_records import ResultPayload

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.db.records import Outcome, TaskRow


def finish_task(
    connection: Connection, task: TaskRow, outcome: Outcome, now: int
) -> bool:
    """Give `task` its outcome inside the caller's transaction; once only.

    Returns:
        False when the task was final already and nothing changed.
    """
    if task.state.final:
        return False
    payload = render_result_payload(task, outcome, now)
    if not rows.add_outcome(connection, task.task_id, outcome, now, payload):
        return False
    rows.move_task(connection, task, outcome.state, now)
    note_events(connection, [outcome_event(task.task_id, now)])
    return True


def render_result_payload(task: TaskRow, outcome: Outcome, now: int) -> bytes:
    """Return what the outcome's public record is made of; it holds the salt."""
    result = msgspec.msgpack.encode(
        (outcome.value, outcome.value_blob, outcome.error_type, outcome.items)
    )
    return msgspec.json.encode(
        ResultPayload(
            task_id=task.task_id,
            attempt=outcome.attempt,
            state=outcome.state.value,
            code=outcome.code,
            result_sha256=content_digest(result),
            finished_at=now,
            nonce=secrets.token_hex(32),
            agreeing=outcome.agreeing,
        )
    )
