"""Reading and writing task rows: SQL here, decisions in `records`.

Every function takes a connection of `Store.read` or `Store.write`; the caller owns the
transaction.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import exists, func, insert, select, update

from stoilo.core.types import TaskState
from stoilo.server.db import schema
from stoilo.server.db.bulk import insert_many, select_in, update_many
from stoilo.server.db.records import (
    AttemptRow,
    AttemptState,
    ItemResult,
    Outcome,
    TaskRow,
    TaskSpec,
    advance_attempt,
    advance_task,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row


_TASK = schema.task
_ATTEMPT = schema.attempt
_HOLD = schema.hold
_OUTCOME = schema.outcome
_CONTENT = schema.content
_GAINED: dict[AttemptState, tuple[str, ...]] = {
    AttemptState.SEALED: (
        "policy_digest",
        "admitted_at",
        "not_after",
        "statement",
        "leaf",
    ),
    AttemptState.LOGGED: ("log_index",),
    AttemptState.SIGNED: ("proof", "envelope"),
}
"""Columns that each step writes, besides the state."""


OPEN_STATES = tuple(state.value for state in TaskState if not state.final)
_SPEC = msgspec.json.Decoder(TaskSpec)
_ITEMS = msgspec.msgpack.Decoder(tuple[ItemResult, ...])


def _task_row(row: Row[Any]) -> TaskRow:
    return TaskRow(
        task_id=row.id,
        account_id=row.account_id,
        request_digest=row.request_digest,
        state=TaskState(row.state),
        attempt=row.attempt,
        spec=_SPEC.decode(row.spec),
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


# Columns and fields have the same names and are matched by them, so that a column that is
# new shifts no other. One call fetches all: this is read in batches of hundreds.
_attempt_values = attrgetter(*AttemptRow.__struct_fields__)


def _attempt_row(row: Row[Any]) -> AttemptRow:
    return AttemptRow(*_attempt_values(row))


def add_contents(connection: Connection, contents: dict[str, bytes]) -> None:
    """Store immutable byte strings by digest; those already there stay."""
    digest = _CONTENT.c.digest
    known = {row.digest for row in select_in(connection, [digest], digest, contents)}
    rows = [
        {"digest": digest, "data": data}
        for digest, data in contents.items()
        if digest not in known
    ]
    insert_many(connection, _CONTENT, rows)


def load_contents(connection: Connection, digests: set[str]) -> dict[str, bytes]:
    """Return the byte strings of `digests`, those that are stored."""
    rows = select_in(connection, _CONTENT.c, _CONTENT.c.digest, digests)
    return {row.digest: bytes(row.data) for row in rows}


def add_task(connection: Connection, tasks: Sequence[TaskRow], keys: list[str]) -> None:
    """Insert new tasks, each with its first attempt; `keys` are idempotency keys."""
    insert_many(
        connection,
        _TASK,
        [
            {
                "id": task.task_id,
                "account_id": task.account_id,
                "idempotency_key": key,
                "request_digest": task.request_digest,
                "state": task.state.value,
                "attempt": task.attempt,
                "level": task.spec.level,
                "map_items": task.spec.map_items,
                "spec": msgspec.json.encode(task.spec).decode(),
                "created_at": task.created_at,
            }
            for task, key in zip(tasks, keys, strict=True)
        ],
    )
    insert_many(
        connection,
        _ATTEMPT,
        [_new_attempt(task.task_id, task.attempt, task.created_at) for task in tasks],
    )


def _new_attempt(task_id: str, number: int, now: int) -> dict[str, object]:
    return {
        "task_id": task_id,
        "number": number,
        "state": AttemptState.CREATED.value,
        "created_at": now,
        "last_code": "",
        "policy_digest": "",
    }


def add_attempt(connection: Connection, task: TaskRow, now: int) -> int:
    """Open the next attempt of `task`; returns its number."""
    number = task.attempt + 1
    connection.execute(insert(_ATTEMPT), [_new_attempt(task.task_id, number, now)])
    connection.execute(
        update(_TASK).where(_TASK.c.id == task.task_id).values(attempt=number)
    )
    return number


def find_task(connection: Connection, task_id: str) -> TaskRow | None:
    """Return the task with this id, whoever owns it."""
    row = connection.execute(select(_TASK).where(_TASK.c.id == task_id)).first()
    return None if row is None else _task_row(row)


def list_tasks(
    connection: Connection, account_id: int, states: Sequence[str], most: int
) -> list[TaskRow]:
    """Return the account's newest tasks, in any of `states`; in any at all when empty."""
    query = select(_TASK).where(_TASK.c.account_id == account_id)
    if states:
        query = query.where(_TASK.c.state.in_(states))
    newest = (_TASK.c.created_at.desc(), _TASK.c.id)
    return list(map(_task_row, connection.execute(query.order_by(*newest).limit(most))))


def find_by_key(
    connection: Connection, account_id: int, keys: Sequence[str]
) -> dict[str, TaskRow]:
    """Return the account's tasks that carry one of these idempotency keys."""
    rows = connection.execute(
        select(_TASK).where(
            _TASK.c.account_id == account_id, _TASK.c.idempotency_key.in_(keys)
        )
    )
    return {row.idempotency_key: _task_row(row) for row in rows}


def count_tasks(
    connection: Connection, *account_ids: int, since: int | None = None
) -> int:
    """Return how many tasks of accounts are not final, or were made after `since` (s)."""
    is_open, made = _TASK.c.state.in_(OPEN_STATES), _TASK.c.created_at
    which = is_open if since is None else made > since
    query = select(func.count()).where(_TASK.c.account_id.in_(account_ids), which)
    return connection.scalar(query) or 0


def move_task(
    connection: Connection, task: TaskRow, target: TaskState, now: int
) -> None:
    """Set the task's state by the table of steps."""
    state = advance_task(task.state, target)
    connection.execute(
        update(_TASK)
        .where(_TASK.c.id == task.task_id)
        .values(state=state.value, finished_at=now if state.final else None)
    )


def find_attempt(
    connection: Connection, task_id: str, number: int
) -> AttemptRow | None:
    """Return one attempt."""
    query = select(_ATTEMPT).where(
        _ATTEMPT.c.task_id == task_id, _ATTEMPT.c.number == number
    )
    row = connection.execute(query).first()
    return None if row is None else _attempt_row(row)


def attempts_in(
    connection: Connection,
    state: AttemptState,
    limit: int,
    *,
    free_at: int | None = None,
) -> list[tuple[AttemptRow, TaskRow]]:
    """Return up to `limit` attempts in `state`, oldest first, with their tasks.

    With `free_at` (s) those that are held beyond that time are left out.
    """
    query = select(_ATTEMPT).where(_ATTEMPT.c.state == state.value)
    if free_at is not None:
        held = exists().where(
            _HOLD.c.task_id == _ATTEMPT.c.task_id,
            _HOLD.c.number == _ATTEMPT.c.number,
            _HOLD.c.until > free_at,
        )
        query = query.where(~held)
    query = query.order_by(_ATTEMPT.c.created_at).limit(limit)
    chosen = connection.execute(query).all()
    if not chosen:
        return []
    ids = [row.task_id for row in chosen]
    found = select_in(connection, _TASK.c, _TASK.c.id, ids)
    tasks = {row.id: _task_row(row) for row in found}
    return [(_attempt_row(row), tasks[row.task_id]) for row in chosen]


def issued_after(
    connection: Connection, last: tuple[str, int], limit: int
) -> list[tuple[str, int]]:
    """Return task and number of up to `limit` attempts with a workunit that follow `last`."""
    name, number = _ATTEMPT.c.task_id, _ATTEMPT.c.number
    follows = (name > last[0]) | ((name == last[0]) & (number > last[1]))
    found = connection.execute(
        select(name, number)
        .where(_ATTEMPT.c.state == AttemptState.ISSUED.value, follows)
        .order_by(name, number)
        .limit(limit)
    )
    return [(row.task_id, row.number) for row in found]


def find_issued(
    connection: Connection, task_id: str, number: int
) -> tuple[AttemptRow, TaskRow] | None:
    """Return an attempt and its task, None unless it still waits for its outcome."""
    attempt = find_attempt(connection, task_id, number)
    task = find_task(connection, task_id)
    if attempt is None or task is None or attempt.state != AttemptState.ISSUED.value:
        return None
    return attempt, task


class _Codes(msgspec.Struct):
    """The one field of a `TaskSpec` that is asked for in great numbers."""

    codes: tuple[str, ...] = ()


_CODES = msgspec.json.Decoder(_Codes)


def attempts_named(
    connection: Connection, workunits: Sequence[str]
) -> dict[str, tuple[AttemptRow, tuple[str, ...]]]:
    """Return workunit name → attempt, and the codes of the gate's findings."""
    if not workunits:
        return {}
    ids = {name.rpartition("_")[0] for name in workunits}
    specs = select_in(connection, [_TASK.c.id, _TASK.c.spec], _TASK.c.id, ids)
    codes = {row.id: _CODES.decode(row.spec).codes for row in specs}
    wanted = set(workunits)
    attempts = select_in(connection, _ATTEMPT.c, _ATTEMPT.c.task_id, ids)
    found = map(_attempt_row, attempts)
    return {
        attempt.workunit: (attempt, codes[attempt.task_id])
        for attempt in found
        if attempt.workunit in wanted
    }


def policies_in_use(connection: Connection) -> tuple[str, ...]:
    """Return the digests of policies under which open attempts were admitted."""
    open_states = [state.value for state in AttemptState if state.open]
    query = (
        select(_ATTEMPT.c.policy_digest)
        .where(_ATTEMPT.c.state.in_(open_states), _ATTEMPT.c.policy_digest != "")
        .distinct()
    )
    return tuple(sorted(connection.scalars(query)))


def orphaned_attempts(connection: Connection) -> list[AttemptRow]:
    """Return open attempts whose task is final: their workunits must be cancelled."""
    final = [state.value for state in TaskState if state.final]
    open_states = [state.value for state in AttemptState if state.open]
    rows = connection.execute(
        select(_ATTEMPT)
        .join(_TASK, _TASK.c.id == _ATTEMPT.c.task_id)
        .where(_TASK.c.state.in_(final), _ATTEMPT.c.state.in_(open_states))
    )
    return [_attempt_row(row) for row in rows]


def save_attempts(
    connection: Connection, attempts: Sequence[AttemptRow], target: AttemptState
) -> None:
    """Store what the attempts have gained and move them by the table of steps.

    Those that others have moved meanwhile stay.
    """
    if not attempts:
        return
    states = [
        advance_attempt(AttemptState(attempt.state), target) for attempt in attempts
    ]
    gained = _GAINED.get(target, ())
    changes = ", ".join(f"{name} = ?" for name in ("state", *gained))
    update_many(
        connection,
        f"UPDATE attempt SET {changes} WHERE task_id = ? AND number = ? AND state = ?",  # noqa: S608 - our own names
        [
            (
                state.value,
                *(getattr(attempt, name) for name in gained),
                *(attempt.task_id, attempt.number, attempt.state),
            )
            for attempt, state in zip(attempts, states, strict=True)
        ],
    )


def mark_tasks(
    connection: Connection,
    task_ids: Sequence[str],
    source: TaskState,
    target: TaskState,
) -> None:
    """Move the tasks that are in `source` to `target`, neither of them final."""
    state = advance_task(source, target)
    connection.execute(
        update(_TASK)
        .where(_TASK.c.id.in_(list(task_ids)), _TASK.c.state == source.value)
        .values(state=state.value)
    )


def add_outcome(
    connection: Connection, task_id: str, outcome: Outcome, now: int, payload: bytes
) -> bool:
    """Store the task's one outcome; False when it has one already (I6).

    `payload` is what the result's public record is made of.
    """
    if find_outcome(connection, task_id) is not None:
        return False
    values = msgspec.structs.asdict(outcome) | {
        "task_id": task_id,
        "state": outcome.state.value,
        "value_blob": outcome.value_blob or None,
        "items": msgspec.msgpack.encode(outcome.items) if outcome.items else None,
        "created_at": now,
        "payload": payload,
    }
    del values["agreeing"]  # of the public record alone
    connection.execute(insert(_OUTCOME).values(values))
    return True


def find_outcome(connection: Connection, task_id: str) -> Outcome | None:
    """Return the task's outcome, None while it has none."""
    row = connection.execute(
        select(_OUTCOME).where(_OUTCOME.c.task_id == task_id)
    ).first()
    if row is None:
        return None
    items = () if row.items is None else _ITEMS.decode(row.items)
    return Outcome(
        state=TaskState(row.state),
        attempt=row.attempt,
        value=None if row.value is None else bytes(row.value),
        value_blob=row.value_blob or "",
        error_type=row.error_type,
        error_text=row.error_text,
        code=row.code,
        output=row.output,
        items=items,
    )
