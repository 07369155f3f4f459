"""A reviewer's view: what waits for him, what he reads, and what he hands in.

Blocking, thread-safe, no gRPC. A reviewer reads sources and arguments of others, which is
his office; he never learns who they are: accounts appear as salted commitments only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from stoilo.server.reviews.approvals import (
    Approval,
    Earlier,
    find_approvals,
    find_earlier,
)

if TYPE_CHECKING:
    from stoilo.core.types import Verdict
    from stoilo.server.db.records import AttemptRow, Owner, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.reviews.book import ReviewBook


LISTED = 100
REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """One task that waits; times in s since 1970."""

    task: TaskRow
    submitter: str  # salted commitment to the account
    since: int
    expires_at: int
    own: bool  # it is the asking reviewer's, who cannot sign it


@dataclass(frozen=True, slots=True)
class Viewed:
    """All that a reviewer may read of a task that waits, or that was approved."""

    task: TaskRow
    content: pb.GetReviewResponse  # hostile: what is to be signed
    own: bool
    approvals: tuple[Approval, ...]  # reviews that cover it, newest first
    verdict: Verdict  # of the gate, under today's policy
    earlier: Earlier | None  # of the same function and submitter


class ReviewDesk:
    """The four calls of a reviewer, and what his pages show besides."""

    def __init__(
        self,
        store: Store,  # tasks and sources
        book: ReviewBook,  # stored reviews, and who waits for one
        *,
        salt_of: Callable[[int], str],  # salt of an account's public commitments
        wake: Callable[[], None],  # called once tasks go on
        clock: Callable[[], int],  # seconds since 1970
        judge: Callable[[TaskRow], Verdict],  # the gate, of a stored task
    ) -> None:
        self._store = store
        self._book = book
        self._salt_of = salt_of
        self._wake = wake
        self._clock = clock
        self._judge = judge

    def queue(self, owner: Owner, limit: int) -> tuple[int, list[Waiting]]:
        """Return how many wait, and those that have waited longest."""
        waiting = self._book.waiting()
        shown = waiting[: min(limit or LISTED, LISTED)]
        return len(waiting), [self._waiting(owner, *one) for one in shown]

    def _waiting(self, owner: Owner, attempt: AttemptRow, task: TaskRow) -> Waiting:
        since = attempt.created_at
        submitter = submitter_commitment(self._salt_of(task.account_id))
        own = task.account_id == owner.account_id
        return Waiting(task, submitter, since, since + self._book.wait_s, own)

    def list_waiting(self, owner: Owner, limit: int) -> pb.ListReviewsResponse:
        """Return the tasks that wait, longest waiting first."""
        total, shown = self.queue(owner, limit)
        with self._store.read() as connection:
            modules = {one.task.spec.task_module for one in shown}
            sources = rows.load_contents(connection, modules)
        answer = pb.ListReviewsResponse(waiting=total)
        for one in shown:
            spec = one.task.spec
            answer.tasks.add(
                task_id=one.task.task_id,
                level=spec.level,
                task_module=spec.task_module,
                submitter=one.submitter,
                waiting_since=one.since,
                expires_at=one.expires_at,
                own=one.own,
                source_bytes=len(sources[spec.task_module]),
            )
        return answer

    def view(self, owner: Owner, task_id: str) -> Viewed:
        """Return a task that waits or was approved; raises ``STO-R027``.

        Blocks for the gate, which judges the source again where its verdict is not known.
        """
        task, approvals = self._shown_task(task_id)
        with self._store.read() as connection:
            earlier = find_earlier(connection, task, self._book.reviewers())
        own = task.account_id == owner.account_id
        content = self._content(task)
        return Viewed(task, content, own, approvals, self._judge(task), earlier)

    def download(self, task_id: str) -> pb.GetReviewResponse:
        """Return what is to be signed, as `view` shows it; raises ``STO-R027``."""
        return self._content(self._shown_task(task_id)[0])

    def _shown_task(self, task_id: str) -> tuple[TaskRow, tuple[Approval, ...]]:
        """Return a task with its approvals; it waits, or has some."""
        with self._store.read() as connection:
            task = rows.find_task(connection, task_id[:64])
            if task is None:
                raise _not_waiting()
            found = find_approvals(
                connection, {task.spec.task_module}, self._book.reviewers()
            )
        covering = tuple(one for one in found if one.opened.review.covers(task.spec))
        if task.state is not TaskState.WAITING_REVIEW and not covering:
            raise _not_waiting()
        return task, covering

    def get(self, task_id: str) -> pb.GetReviewResponse:
        """Return what a reviewer reads of one task; raises ``STO-R027``."""
        return self._content(self._waiting_task(task_id))

    def _content(self, task: TaskRow) -> pb.GetReviewResponse:
        spec = task.spec
        wanted = {spec.task_module, spec.validator_module, spec.arguments}
        with self._store.read() as connection:
            contents = rows.load_contents(connection, wanted)
        if not wanted <= set(contents):  # of a task that ended long ago
            raise _not_waiting()
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
