"""Finished workunits become outcomes: exactly one a task, whatever crashes (I6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stoilo.core import tracing
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import UserCodeError
from stoilo.core.types import TaskState
from stoilo.sandbox.process.report import LIMIT_CODES
from stoilo.server.admission.estimates import note_measured
from stoilo.server.db import rows
from stoilo.server.db.records import AttemptState, ItemResult, Outcome
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.log.public_records import finish_task
from stoilo.server.validation.answers import item_outcomes, render_item
from stoilo.server.validation.results import ResultValidation, split_workunit
from stoilo.server.validation.validators import SwappedProgram

if TYPE_CHECKING:
    from stoilo.server.admission.blobs import BlobStore
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import ReceivedResult, WorkunitOutcome


LOGGER = logging.getLogger(__name__)
INLINE_VALUE_BYTES = 1024 * 1024
"""Larger values are stored as blobs and fetched by DownloadBlob."""

INLINE_ITEMS_BYTES = 8 * 1024 * 1024
SMALL_ITEM_BYTES = 1024
"""Of 10,000 items at most; so all small ones together fit into one answer."""

FAILURES: dict[OutcomeKind, tuple[str, str]] = {
    OutcomeKind.TOO_MANY_ERRORS: ("STO-R050", "too many results failed"),
    OutcomeKind.TOO_MANY_TOTAL: ("STO-R052", "no agreement within max_total results"),
    OutcomeKind.TOO_MANY_SUCCESS: ("STO-R052", "the results do not agree"),
    OutcomeKind.TOO_MANY_REFUSALS: ("STO-R061", "no volunteer's opt-in allows it"),
    OutcomeKind.VALIDATOR_FAILED: ("STO-R053", "a validator failed"),
    OutcomeKind.CANCELLED: ("STO-R062", "the task was cancelled"),
}


def _failure(task: TaskRow, outcome: WorkunitOutcome) -> Outcome:
    """Return the outcome of a workunit without a canonical result.

    The code is that of the last failed check or result; where nothing failed and a quorum
    of results came back, the comparator is what kept them apart.
    """
    kind = outcome.kind
    disagreed = len(outcome.valid) >= task.spec.redundancy.min_quorum
    if kind is OutcomeKind.TOO_MANY_TOTAL and disagreed:
        kind = OutcomeKind.TOO_MANY_SUCCESS
    code, text = FAILURES[kind]
    if outcome.code:
        entry = load_codebook().get(outcome.code)
        code, text = outcome.code, entry.title if entry else text
        text += _limits_behind(code, task)
    cancelled = kind is OutcomeKind.CANCELLED
    return Outcome(
        TaskState.CANCELLED if cancelled else TaskState.SYSTEM_ERROR,
        task.attempt,
        error_text=outcome.message or text,
        code=code,
    )


def _limits_behind(code: str, task: TaskRow) -> str:
    """Return what a researcher does about a limit that was reached; empty for others."""
    names = [name for name, of in LIMIT_CODES.items() if of == code]
    if not names:
        return ""
    limits = task.spec.limits
    held = ", ".join(f"{name}={getattr(limits, name):_}" for name in names)
    return (
        f": the task had {held}; limits=TaskLimits(…) asks for more, "
        f"up to what `stoilo policy show {task.spec.level}` says"
    )


class OutcomeKeeper:
    """`Assimilator` for the engine."""

    def __init__(
        self,
        store: Store,  # tasks
        validation: ResultValidation,  # decodes and compares
        blobs: BlobStore,  # where large values go
        *,
        # opens the next attempt of a task (`Attempts.retry`)
        retry: Callable[[TaskRow, AttemptRow], None],
        clock: Callable[[], int],  # seconds since 1970
        # is told that a task has ended, after that is durable; must not block
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._validation = validation
        self._blobs = blobs
        self._retry = retry
        self._clock = clock
        self._ended = ended

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Take the outcome durably; repeats and strangers change nothing.

        Raises:
            NotDecidedYet: ``STO-R065``: its validators must run first.
        """
        began = time.time_ns()
        task_id, number = split_workunit(outcome.workunit)
        with self._store.read() as connection:
            task = rows.find_task(connection, task_id)
            attempt = rows.find_attempt(connection, task_id, number)
        if task is None or attempt is None:
            LOGGER.warning("outcome of unknown workunit %s ignored", outcome.workunit)
            return
        # A crash repeats outcomes, and an older attempt's may come late (I6).
        if task.state.final or task.attempt != number:
            return
        if outcome.kind is OutcomeKind.ADMISSION_ENDED:
            self._retry(task, attempt)
            return
        try:
            decided = self._decide(task, attempt, outcome)
        except (UserCodeError, SwappedProgram) as error:
            state, text, code = TaskState.SYSTEM_ERROR, error.message, error.code
            decided = Outcome(state, task.attempt, error_text=text, code=code)
        self._finish(task, attempt, decided, outcome.valid)
        told = {"state": decided.state.value, "valid_results": len(outcome.valid)}
        tracing.record("stoilo.validate", task_id, began, **told)

    def _finish(
        self,
        task: TaskRow,
        attempt: AttemptRow,
        decided: Outcome,
        valid: tuple[ReceivedResult, ...],
    ) -> None:
        now = self._clock()
        with self._store.write() as connection:
            current = rows.find_task(connection, task.task_id)
            if current is None or not finish_task(connection, current, decided, now):
                return
            # Closed meanwhile by a sweep: then it stays closed.
            if attempt.state == AttemptState.ISSUED:
                rows.save_attempts(connection, [attempt], AttemptState.DONE)
            # Failed runs are short; they would make the next ones look cheap.
            if decided.state is TaskState.SUCCEEDED:
                note_measured(connection, task.spec, valid, now)
        # After the commit: a repetition needs the validators' answers once more.
        self._validation.forget(attempt.workunit)
        self._ended()

    def _decide(
        self, task: TaskRow, attempt: AttemptRow, outcome: WorkunitOutcome
    ) -> Outcome:
        """Return the task's outcome for a finished workunit."""
        if task.spec.map_items and outcome.valid:
            decided = self._decide_items(task, attempt, outcome)
            if decided is not None:
                return decided
        if outcome.kind is OutcomeKind.CANONICAL and outcome.canonical is not None:
            answer = self._validation.answer(outcome.canonical, task, attempt)
            item = render_item(answer.items[0])
            decided = self._outcome(task, item, answer.output)
            return msgspec.structs.replace(decided, agreeing=len(outcome.valid))
        return _failure(task, outcome)

    def _decide_items(
        self, task: TaskRow, attempt: AttemptRow, outcome: WorkunitOutcome
    ) -> Outcome | None:
        """Return the outcome of a map task by items, None when no item has one."""
        answers = [self._validation.answer(one, task, attempt) for one in outcome.valid]
        quorum = outcome.quorum or task.spec.redundancy.min_quorum
        opinion = self._validation.opinion(task, attempt)
        items = item_outcomes(answers, quorum, opinion.agree)
        opinion.rise()
        # Nothing to hand out: the workunit's own failure says more.
        if all(item.state is TaskState.SYSTEM_ERROR for item in items):
            return None
        return Outcome(
            TaskState.SUCCEEDED,
            task.attempt,
            items=self._store_large(task, items),
            output=answers[0].output,
        )

    def _store_large(
        self, task: TaskRow, items: tuple[ItemResult, ...]
    ) -> tuple[ItemResult, ...]:
        """Move values to blobs when one answer could not carry them all."""
        total = sum(len(item.value or b"") for item in items)
        if total <= INLINE_ITEMS_BYTES:
            return items
        return tuple(self._store_item(task, item) for item in items)

    def _store_item(self, task: TaskRow, item: ItemResult) -> ItemResult:
        if item.value is None or len(item.value) <= SMALL_ITEM_BYTES:
            return item
        blob = self._blobs.put(task.account_id, item.value)
        return msgspec.structs.replace(item, value=None, value_blob=blob)

    def _outcome(self, task: TaskRow, item: ItemResult, output: str) -> Outcome:
        """Return the outcome of a plain task; a large value goes to a blob."""
        value, blob = item.value, ""
        if value is not None and len(value) > INLINE_VALUE_BYTES:
            blob, value = self._blobs.put(task.account_id, value), None
        return Outcome(
            item.state,
            task.attempt,
            value=value,
            value_blob=blob,
            error_type=item.error_type,
            error_text=item.error_text,
            code=item.code,
            output=output,
        )
