"""Stored reviews, and the attempts that wait here for one (design §4).

A review is about modules, level, flavor, limits and arguments, not about one task: signed
for any arguments it admits every later task of that source until it ends. What is stored
was checked when it came and is checked again each time, because reviewers are withdrawn.

One place decides who waits and who goes on: `split` before a statement is sealed,
`release` whenever reviews or the policy have changed, `expire` for those who waited too
long. A parked task is durable like any other and ends in exactly one outcome (I6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from stoilo.audit.format.facts import ReviewRecord
from stoilo.audit.format.records import salted_commitment
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.statement import MAX_LIFETIME_S
from stoilo.core.types import TaskState
from stoilo.executor.verifier.statements import OpenedReview, open_review
from stoilo.server.db import rows, schema
from stoilo.server.db.records import NO_REVIEWS, AttemptState, Outcome, Reviews
from stoilo.server.log.outbox import NO_ORIGIN, note_record
from stoilo.server.log.public_records import (
    finish_task,
    read_sealed,
    review_commitment,
    submitter_commitment,
)

if TYPE_CHECKING:
    from stoilo.executor.verifier.targets import Reviewer
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store


MOST_REVIEWS = 4  # in one statement; see `stoilo.core.statement.Statement.reviewers`
START_MARGIN_S = 60
"""Time from sealing to the first result that a review must still allow for."""

WAIT_S = 30 * 86_400
"""How long a task waits for a reviewer unless the settings say otherwise, s."""

MOST_PARKED = 100_000

_Pairs = Sequence[tuple["AttemptRow", "TaskRow"]]


class ReviewBook:
    """Reads and writes reviews; decides which ones hold for a task, and who waits.

    Attributes:
        wait_s: how long a task may wait, s.
    """

    def __init__(
        self,
        store: Store,  # where they lie
        # those whom the release names at this moment
        reviewers: Callable[[], tuple[Reviewer, ...]],
        salt_of: Callable[[int], str],  # salt of an account's public commitments
        *,
        # whether today's policy wants a review at a level
        needs_review: Callable[[str], bool],
        clock: Callable[[], int],  # seconds since 1970
        wait_s: int = WAIT_S,
    ) -> None:
        self._store = store
        self._reviewers = reviewers
        self._salt_of = salt_of
        self._needs_review = needs_review
        self._clock = clock
        self.wait_s = wait_s
        self._started = False
        self._releasing = threading.Lock()

    def open(self, text: bytes) -> OpenedReview:
        """Return the review in hostile `text`; raises ``STO-R023``."""
        try:
            return open_review(text, self._reviewers())
        except TrustError as error:
            raise TrustError(
                "STO-R023",
                f"the review does not hold: {error.message}",
                hint="sign with a key that this project's operator has enrolled",
            ) from error

    def add(self, review: OpenedReview, text: bytes, account_id: int, now: int) -> None:
        """Store a review that `open` returned; the same bytes are stored once."""
        table, digest = schema.review, content_digest(text)
        with self._store.write() as connection:
            # Clients repeat calls; one review is one record in the log.
            known = select(table.c.id).where(table.c.digest == digest)
            if connection.scalar(known) is None:
                connection.execute(
                    insert(table).values(
                        account_id=account_id,
                        digest=digest,
                        task_module=review.review.task_module,
                        envelope=text,
                        not_after=review.review.not_after,
                        created_at=now,
                    )
                )
                record = self._record(review, text, account_id, now)
                note_record(connection, f"review:{digest}", record)

    def _record(
        self, opened: OpenedReview, text: bytes, account_id: int, now: int
    ) -> ReviewRecord:
        salt, review = self._salt_of(account_id), opened.review
        return ReviewRecord(
            origin=NO_ORIGIN,
            time=now,
            decision="signed",
            reviewer=content_digest(opened.reviewer.key.raw),
            review=review_commitment(salt, text),
            source=salted_commitment(salt, "source", review.task_module),
            level=review.level,
            not_after=review.not_after,
        )

    def find(self, tasks: Sequence[TaskRow], now: int) -> dict[str, Reviews]:
        """Return task id → the reviews that it can be admitted with at `now`."""
        modules = {task.spec.task_module for task in tasks}
        table = schema.review
        query = select(table.c.account_id, table.c.envelope).where(
            table.c.task_module.in_(list(modules)), table.c.not_after > now
        )
        with self._store.read() as connection:
            stored = connection.execute(query).all()
        if not stored:
            return {}
        reviewers = self._reviewers()
        opened = [
            (row, review)
            for row in stored
            if (review := try_open(bytes(row.envelope), reviewers)) is not None
        ]
        return {task.task_id: self._choose(task, opened, now) for task in tasks}

    def reviewers(self) -> tuple[Reviewer, ...]:
        """Return whom the release names at this moment."""
        return self._reviewers()

    def needs_review(self, level: str) -> bool:
        """Whether today's policy wants a review at `level`."""
        return self._needs_review(level)

    def is_own(self, task: TaskRow, account_id: int, review: OpenedReview) -> bool:
        """Whether `review`, handed in by `account_id`, is about the reviewer's own task."""
        submitter = submitter_commitment(self._salt_of(task.account_id))
        return account_id == task.account_id or submitter in review.reviewer.accounts

    def _choose(
        self,
        task: TaskRow,
        opened: Sequence[tuple[Any, OpenedReview]],  # each with its row
        now: int,
    ) -> Reviews:
        until = now + task.spec.redundancy.delay_bound_s + START_MARGIN_S
        good = [
            (row, one)
            for row, one in opened
            if one.review.not_after >= until
            and one.review.covers(task.spec)
            and not self.is_own(task, row.account_id, one)
        ]
        if not good:
            return NO_REVIEWS
        # An admission ends with the first of its reviews, so none may shorten the longest.
        good.sort(key=lambda pair: pair[1].review.not_after, reverse=True)
        first = good[0][1].review.not_after
        by_reviewer: dict[bytes, str] = {}
        for row, one in good:
            if one.review.not_after >= first:
                by_reviewer.setdefault(
                    one.reviewer.key.identity, bytes(row.envelope).decode()
                )
        return Reviews(tuple(by_reviewer.values())[:MOST_REVIEWS], first)

    def split(
        self, waiting: _Pairs, now: int
    ) -> tuple[list[tuple[AttemptRow, TaskRow, Reviews]], list[AttemptRow]]:
        """Return which attempts go on, with their reviews, and which must park."""
        found = self.find([task for _, task in waiting], now)
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
            if attempt.created_at + self.wait_s <= now
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


def reviews_in(statement: bytes) -> tuple[str, ...]:
    """Return the reviews that a statement of ours carries."""
    return read_sealed(statement).reviewers


def try_open(text: bytes, reviewers: Sequence[Reviewer]) -> OpenedReview | None:
    """Return the review, None when its reviewer has been withdrawn."""
    try:
        return open_review(text, reviewers)
    except TrustError:
        return None
