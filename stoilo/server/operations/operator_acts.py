"""Acts of the operator that the log tells: starts and stops, and ending others' tasks.

Tokens, reviewers and retention note their acts where they are done
(`stoilo.server.admission.tokens`, `.enrollment`, `.retention`).
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from stoilo.audit.format.facts import NamedDigest, OperatorAct, OperatorRecord
from stoilo.audit.format.leaf import task_commitment
from stoilo.core.errors import UsageError
from stoilo.core.levels import load_levels
from stoilo.core.types import TaskState
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from stoilo.server.db import rows
from stoilo.server.db.records import Outcome
from stoilo.server.log.outbox import NO_ORIGIN, make_mark, note_act, note_record
from stoilo.server.log.public_records import finish_task

if TYPE_CHECKING:
    from stoilo.server.db.store import Store


def note_start(store: Store, policy_digest: str, now: int) -> None:
    """Note that a server starts, with the digests of what it works by."""
    named = {f"level/{level.name}": level.digest for level in load_levels()}
    named |= {"policy": policy_digest, "language": LANGUAGE_DIGEST}
    versions = tuple(NamedDigest(name, value) for name, value in sorted(named.items()))
    _note(store, OperatorAct.SERVER_STARTED, now, versions)


def note_stop(store: Store, now: int) -> None:
    """Note that a server stops as it was told; one that was killed notes nothing."""
    _note(store, OperatorAct.SERVER_STOPPED, now, ())


def _note(
    store: Store, act: OperatorAct, now: int, versions: tuple[NamedDigest, ...]
) -> None:
    record = OperatorRecord(
        origin=NO_ORIGIN,
        time=now,
        act=act,
        version=version("stoilo"),
        versions=versions,
        mark=make_mark(),
    )
    with store.write() as connection:
        note_record(connection, f"operator:{record.mark}", record)


def cancel_for_operator(store: Store, task_id: str, now: int) -> TaskState:
    """End anybody's task, with the operator's act in the log; returns its state then.

    A running server takes the workunit back by itself.

    Raises:
        UsageError: ``STO-R029`` no such task.
    """
    with store.write() as connection:
        task = rows.find_task(connection, task_id[:64])
        if task is None:
            raise UsageError("STO-R029", "there is no such task")
        outcome = Outcome(
            TaskState.CANCELLED,
            task.attempt,
            error_text="cancelled by the project's operator",
            code="STO-R062",
        )
        if not finish_task(connection, task, outcome, now):
            return task.state
        act, name = OperatorAct.TASK_CANCELLED, task_commitment(task.task_id)
        note_act(connection, act, now, task=name)
    return outcome.state
