"""A reviewer's view: what waits for him, what he reads, and what he hands in.

Blocking, thread-safe, no gRPC. A reviewer reads sources and arguments of others, which is
his office; he never learns who they are: accounts appear as salted commitments only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stoilo.audit.format.facts import ReviewRecord
from stoilo.audit.format.records import salted_commitment, task_commitment
from stoilo.core.errors import PolicyRefusal, TrustError, UsageError, show_plainly
from stoilo.core.rpc import reviews_pb2 as pb
from stoilo.core.types import TaskState
from stoilo.server.db import rows
from stoilo.server.db.records import Outcome
from stoilo.server.log.outbox import NO_ORIGIN, note_record
from stoilo.server.log.public_records import finish_task, submitter_commitment

if TYPE_CHECKING:
    from stoilo.server.db.records import AttemptRow, Owner, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.reviews.book import ReviewBook


LISTED = 100
REASON_CHARS = 1_000


class ReviewDesk:
    """The four calls of a reviewer."""

    def __init__(
        self,
        store: Store,  # tasks and sources
        book: ReviewBook,  # stored reviews, and who waits for one
        *,
        salt_of: Callable[[int], str],  # salt of an account's public commitments
        wake: Callable[[], None],  # called once tasks go on
        clock: Callable[[], int],  # seconds since 1970
    ) -> None:
        self._store = store
        self._book = book
        self._salt_of = salt_of
        self._wake = wake
        self._clock = clock

    def list_waiting(self, owner: Owner, limit: int) -> pb.ListReviewsResponse:
        """Return the tasks that wait, longest waiting first."""
        waiting = self._book.waiting()
        shown = waiting[: min(limit or LISTED, LISTED)]
        modules = {task.spec.task_module for _, task in shown}
        with self._store.read() as connection:
            sources = rows.load_contents(connection, modules)
        answer = pb.ListReviewsResponse(waiting=len(waiting))
        for attempt, task in shown:
            self._fill(answer.tasks.add(), owner, attempt, task)
            answer.tasks[-1].source_bytes = len(sources[task.spec.task_module])
        return answer

    def _fill(
        self, row: pb.WaitingTask, owner: Owner, attempt: AttemptRow, task: TaskRow
    ) -> None:
        row.task_id = task.task_id
        row.level = task.spec.level
        row.task_module = task.spec.task_module
        row.submitter = submitter_commitment(self._salt_of(task.account_id))
        row.waiting_since = attempt.created_at
        row.expires_at = attempt.created_at + self._book.wait_s
        row.own = task.account_id == owner.account_id

    def get(self, task_id: str) -> pb.GetReviewResponse:
        """Return what a reviewer reads of one task; raises ``STO-R027``."""
        task = self._waiting_task(task_id)
        spec = task.spec
        wanted = {spec.task_module, spec.validator_module, spec.arguments}
        with self._store.read() as connection:
            contents = rows.load_contents(connection, wanted)
        limits = spec.limits
        return pb.GetReviewResponse(
            task_id=task.task_id,
            task_module=contents[spec.task_module],
            entry=spec.entry,
            validator_module=contents[spec.validator_module],
            init_entry=spec.init_entry,
            compare_entry=spec.compare_entry,
            arguments=contents[spec.arguments],
            blobs=spec.blobs,
            level=spec.level,
            flavor=spec.flavor,
            limits=pb.ReviewLimits(
                cpu_s=limits.cpu_s,
                wall_s=limits.wall_s,
                memory_bytes=limits.memory_bytes,
                result_bytes=limits.result_bytes,
                output_bytes=limits.output_bytes,
                threads=limits.threads,
            ),
            submitter=submitter_commitment(self._salt_of(task.account_id)),
            map_items=spec.map_items,
            publish_source=spec.publish_source,
        )

    def submit(self, owner: Owner, task_id: str, envelope: bytes) -> int:
        """Take a signed review (hostile) of a waiting task; returns how many go on.

        Raises ``STO-R027``; ``STO-R023`` the signature does not hold, it is about other
        work, or ends too soon; ``STO-R025``, the reviewer's own task.
        """
        task = self._waiting_task(task_id)
        opened, now = self._book.open(envelope), self._clock()
        if self._book.is_own(task, owner.account_id, opened):
            raise _own_task()
        if not opened.review.covers(task.spec):
            raise TrustError(
                "STO-R023",
                "the review is about other work than this task",
                hint="fetch the task again and sign what it shows",
            )
        if opened.review.not_after <= now:
            raise UsageError("STO-R023", "the review has expired already")
        # Kept although it may be too short for this task: a shorter one may use it.
        self._book.add(opened, envelope, owner.account_id, now)
        released = self._book.release()
        if not released and self._still_waits(task_id):
            raise UsageError(
                "STO-R023",
                "the review ends before a volunteer could finish a result",
                hint="sign again with a later end",
            )
        self._wake()
        return released

    def refuse(self, owner: Owner, task_id: str, reason: str) -> TaskState:
        """End a waiting task with the reviewer's reason; returns its state then.

        Raises ``STO-R027``; ``STO-R025``, the reviewer's own task.
        """
        task = self._waiting_task(task_id)
        if task.account_id == owner.account_id:
            raise _own_task()
        said = show_plainly(reason.strip()[:REASON_CHARS])
        outcome = Outcome(
            TaskState.SYSTEM_ERROR,
            task.attempt,
            error_text=f"a reviewer refused it: {said or 'no reason given'}",
            code="STO-R064",
        )
        with self._store.write() as connection:
            current = rows.find_task(connection, task_id)
            # Another reviewer, or its owner, may have been faster.
            if current is None or current.state is not TaskState.WAITING_REVIEW:
                raise _not_waiting()
            now = self._clock()
            finish_task(connection, current, outcome, now)
            record = self._refusal(owner, current, now)
            note_record(connection, f"refused:{task_id}", record)
        self._wake()  # the pipeline closes the attempt
        return outcome.state

    def _refusal(self, owner: Owner, task: TaskRow, now: int) -> ReviewRecord:
        """Return the public record of a refusal; the reason is the researcher's only."""
        return ReviewRecord(
            origin=NO_ORIGIN,
            time=now,
            decision="refused",
            reviewer="",
            review=salted_commitment(owner.salt, "refusal", task.task_id),
            source=salted_commitment(owner.salt, "source", task.spec.task_module),
            level=task.spec.level,
            task=task_commitment(task.task_id),
        )

    def _still_waits(self, task_id: str) -> bool:
        with self._store.read() as connection:
            task = rows.find_task(connection, task_id)
        return task is not None and task.state is TaskState.WAITING_REVIEW

    def _waiting_task(self, task_id: str) -> TaskRow:
        """Return a task that waits for a review; all others do not exist here."""
        with self._store.read() as connection:
            task = rows.find_task(connection, task_id[:64])
        if task is None or task.state is not TaskState.WAITING_REVIEW:
            raise _not_waiting()
        return task


def _not_waiting() -> UsageError:
    return UsageError(
        "STO-R027",
        "no such task waits for a review",
        hint="`stoilo policy review show` shows what waits",
    )


def _own_task() -> PolicyRefusal:
    return PolicyRefusal(
        "STO-R025",
        "nobody reviews himself: the task is from an account of yours",
        hint="ask another reviewer",
    )
