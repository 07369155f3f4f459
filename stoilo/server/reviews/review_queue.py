"""Attempts whose level needs a review wait here for a person (design §4).

One place decides who waits and who goes on: `split` before a statement is sealed,
`release` whenever reviews or the policy have changed, `expire` for those who waited too
long. A parked task is durable like any other and ends in exactly one outcome (I6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stoilo.core.statement import MAX_LIFETIME_S
from stoilo.core.types import TaskState
from stoilo.server.db import rows
from stoilo.server.db.records import NO_REVIEWS, AttemptState, Outcome
from stoilo.server.log.public_records import finish_task

if TYPE_CHECKING:
    from stoilo.server.db.records import AttemptRow, Reviews, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.reviews.book import ReviewBook


WAIT_S = 30 * 86_400
"""How long a task waits for a reviewer unless the settings say otherwise, s."""

MOST_PARKED = 100_000

_Pairs = Sequence[tuple["AttemptRow", "TaskRow"]]


class ReviewQueue:
    """The attempts that wait for a review."""

    def __init__(
        self,
        store: Store,  # tasks and attempts
        book: ReviewBook,  # stored reviews
        # whether today's policy wants a review at a level
        needs_review: Callable[[str], bool],
        clock: Callable[[], int],  # seconds since 1970
        wait_s: int = WAIT_S,  # how long a task may wait, s
    ) -> None:
        self._store = store
        self._book = book
        self._needs_review = needs_review
        self._clock = clock
        self._wait_s = wait_s
        self._started = False
        self._releasing = threading.Lock()

    @property
    def wait_s(self) -> int:
        """How long a task may wait, s."""
        return self._wait_s

    def split(
        self, waiting: _Pairs, now: int
    ) -> tuple[list[tuple[AttemptRow, TaskRow, Reviews]], list[AttemptRow]]:
        """Return which attempts go on, with their reviews, and which must park."""
        found = self._book.find([task for _, task in waiting], now)
        ready, parked = [], []
        for attempt, task in waiting:
            reviews = found.get(task.task_id, NO_REVIEWS)
            if self._needs_review(task.spec.level):
                if reviews.texts:
                    ready.append((attempt, task, reviews))
                else:
                    parked.append(attempt)
            else:  # a review that nobody asked for must not shorten the admission
                lasting = (reviews.not_after or 0) >= now + MAX_LIFETIME_S
                ready.append((attempt, task, reviews if lasting else NO_REVIEWS))
        return ready, parked

    def park(self, attempts: Sequence[AttemptRow]) -> None:
        """Let attempts wait, durably."""
        self._move(
            attempts, AttemptState.PARKED, TaskState.ADMITTING, TaskState.WAITING_REVIEW
        )

    def release_once(self) -> int:
        """Do `release` after a start: the policy may be another one than before it."""
        if self._started:
            return 0
        released = self.release()
        self._started = True
        return released

    def release(self) -> int:
        """Let go on who has what he waited for; returns how many."""
        # A review handed in and the pipeline's start may release at once: each moves rows
        # that it has read before.
        with self._releasing:
            waiting = self.waiting()
            if not waiting:
                return 0
            ready, _ = self.split(waiting, self._clock())
            self._move(
                [attempt for attempt, _, _ in ready],
                AttemptState.CREATED,
                TaskState.WAITING_REVIEW,
                TaskState.ADMITTING,
            )
            return len(ready)

    def expire(self) -> int:
        """End the tasks that waited too long; returns how many."""
        now = self._clock()
        late = [
            task
            for attempt, task in self.waiting()
            if attempt.created_at + self._wait_s <= now
        ]
        for task in late:
            outcome = Outcome(
                TaskState.EXPIRED,
                task.attempt,
                code="STO-R060",
                error_text="no reviewer signed it in time",
            )
            with self._store.write() as connection:
                # Reviewed in the last moment: then it goes on.
                current = rows.find_task(connection, task.task_id)
                if current is not None and current.state is TaskState.WAITING_REVIEW:
                    finish_task(connection, current, outcome, now)
        return len(late)

    def waiting(self) -> list[tuple[AttemptRow, TaskRow]]:
        """Return who waits, longest waiting first."""
        with self._store.read() as connection:
            found = rows.attempts_in(connection, AttemptState.PARKED, MOST_PARKED)
        return [(one, task) for one, task in found if not task.state.final]

    def _move(
        self,
        attempts: Sequence[AttemptRow],
        state: AttemptState,
        source: TaskState,
        target: TaskState,
    ) -> None:
        if not attempts:
            return
        with self._store.write() as connection:
            rows.save_attempts(connection, attempts, state)
            names = [attempt.task_id for attempt in attempts]
            rows.mark_tasks(connection, names, source, target)
