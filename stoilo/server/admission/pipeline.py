"""The admission pipeline: every durable step of an attempt, in batches, resumable.

Three threads (write and log; sign; issue) walk all attempts through the steps of
`stoilo.server.db.records`, so that one batch is signed while the next is logged. Each step
reads the rows that wait for it, does its work idempotently (the log knows its leaves by
digest, the engine its workunits by name) and commits; so kill -9 at any moment costs at
most the repetition of one step, and never a second leaf, workunit or outcome.
Order is the invariant I1: no workunit without a leaf under a published checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from stoilo.core.errors import InternalError, StoiloError
from stoilo.core.types import TaskState
from stoilo.server.admission.issuing import Issuer, Work, let_go
from stoilo.server.admission.outdated import Reconciler
from stoilo.server.db import rows
from stoilo.server.db.records import (
    MAX_ATTEMPTS,
    AttemptState,
    Outcome,
    needs_new_attempt,
)
from stoilo.server.db.store import DatabaseAwayError
from stoilo.server.log.outbox import note_events, workunit_event
from stoilo.server.log.public_records import finish_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.server.admission.outdated import (
        UnreviewedWork,
        UnwitnessedWork,
        WithdrawnWork,
    )
    from stoilo.server.admission.statements import StatementWriter
    from stoilo.server.admission.workunits import WorkunitWriter
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine
    from stoilo.server.log.leaves import LeafBook
    from stoilo.server.log.ports import AdmissionSigner, Log
    from stoilo.server.reviews.review_queue import ReviewQueue


LOGGER = logging.getLogger(__name__)
BATCH = 256
IDLE_S = 0.5
RETRY_S = 1.0
SWEEP_S = 0.5
"""Shortest time between two searches for attempts whose task has ended otherwise."""
EXPIRY_S = 60.0
"""Shortest time between two searches for tasks that waited too long for a reviewer."""
PUBLISH_TIMEOUT_S = 5.0

PATIENT_CODES = frozenset({"STO-K023", "STO-L013"})
"""The signer's refusals that pass with time (the epoch's rate; missing witnesses)."""

NO_EPOCH = "STO-K024"
RENEWED_CODES = frozenset({"STO-A040", "STO-A043", NO_EPOCH})
"""Refusals of a statement's times or epoch: another statement of the task may pass."""

REVIEW_CODES = frozenset({"STO-A055"})
"""Refusals of a statement's reviews: the task is parked until there are better ones."""

RENEWAL_S = 300
"""A statement younger than this is not replaced while its epoch is the current one."""

_ADMITTED = frozenset({AttemptState.SEALED, AttemptState.LOGGED, AttemptState.SIGNED})
"""States of an attempt whose leaf may be in the log and whose workunit is not made."""

Waiting = list[tuple["AttemptRow", "TaskRow"]]


class AdmissionPipeline:
    """Moves attempts from ``created`` to ``issued``, and leaves into the log.

    Args:
        store: tasks and attempts.
        log: the audit log's writer.
        signer: client of the signer process.
        engine: where workunits go.
        statements: fixes statement bytes.
        workunits: turns a signed attempt into a `WorkunitSpec`.
        leaves: results and refusals that wait for the log.
        review: the digest of the policy that admits a task today.
        review_queue: who waits for a reviewer.
        clock: seconds since 1970.
        unreviewed: work with a review by a reviewer who was withdrawn.
        withdrawn: work that names something withdrawn.
        unwitnessed: work whose proof the log policy no longer accepts.
        taken_back: is told the names of workunits that nobody wants any more.

    Attributes:
        workers: the threads; each does its steps in turn, whatever becomes of one.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        signer: AdmissionSigner,
        engine: Engine,
        *,
        statements: StatementWriter,
        workunits: WorkunitWriter,
        leaves: LeafBook,
        review: Callable[[TaskRow], str],
        review_queue: ReviewQueue,
        clock: Callable[[], int],
        unreviewed: UnreviewedWork,
        withdrawn: WithdrawnWork,
        unwitnessed: UnwitnessedWork,
        taken_back: Callable[[str], None] = lambda workunit: None,  # noqa: ARG005 - nobody judges
    ) -> None:
        self._store = store
        self._log = log
        self._signer = signer
        self._engine = engine
        self._statements = statements
        self._workunits = workunits
        self._leaves = leaves
        self._review = review
        self._review_queue = review_queue
        self._unreviewed = unreviewed
        self._withdrawn = withdrawn
        self._unwitnessed = unwitnessed
        self._taken_back = taken_back
        self._clock = clock
        self._stopping = threading.Event()
        self._swept_at = 0.0
        self._expired_at = float("-inf")
        self._reconciler = Reconciler(store, engine, self.retry)
        # One thread a kind of waiting: for the disk, the signer, the engine. So one batch is
        # signed while the next is logged, and an engine that is away stops no sealing.
        self.workers = [
            _Worker(
                "admission-log",
                (review_queue.release_once, self._seal, self._append),
                self,
            ),
            _Worker("admission-sign", (self._sign,), self),
            _Worker("admission-issue", (self._issue, self._sweep_now_and_then), self),
            _Worker("admission-leaves", (self._log_leaves,), self),
            _Worker("admission-reconcile", (self._reconciler.step,), self),
        ]

    @property
    def stopping(self) -> threading.Event:
        """Set once the pipeline is to end."""
        return self._stopping

    @property
    def trouble(self) -> StoiloError | None:
        """What keeps a step from going on at this moment."""
        return next((one.trouble for one in self.workers if one.trouble), None)

    def start(self) -> None:
        """Begin in own threads; what a killed server left half done comes first."""
        for worker in self.workers:
            worker.start()

    def wake(self) -> None:
        """Say that rows have changed."""
        for worker in self.workers:
            worker.wanted.set()

    def stop(self) -> None:
        """Finish the steps in progress and end the threads."""
        self._stopping.set()
        self.wake()
        for worker in self.workers:
            if worker.is_alive():
                worker.join()

    def run_once(self) -> int:
        """Do every step once, in order, in this thread; returns how many rows moved."""
        self._swept_at, self._expired_at = 0.0, float("-inf")
        self._reconciler.reset()
        return sum(step() for worker in self.workers for step in worker.steps)

    def _log_leaves(self) -> int:
        return self._leaves.append_waiting(self._log)

    def _waiting(self, state: AttemptState, *, free_at: int | None = None) -> Waiting:
        with self._store.read() as connection:
            found = rows.attempts_in(connection, state, BATCH, free_at=free_at)
        return [(attempt, task) for attempt, task in found if not task.state.final]

    def _sweep_now_and_then(self) -> int:
        """Sweep, but not after each batch of a busy server: it reads every open row."""
        # Each sweep reads every open row, so a busy server does not sweep after each batch.
        if time.monotonic() - self._swept_at < SWEEP_S:
            return 0
        moved = self._sweep() + self._expire_parked()
        moved += self._renew(self._unreviewed.find())
        moved += self._renew(self._withdrawn.find())
        moved += self._renew(self._unwitnessed.find())
        self._swept_at = time.monotonic()
        return moved

    def _renew(self, lost: Waiting) -> int:
        """Take back what a withdrawn reviewer signed, or volunteers no longer accept.

        So too what the engine has under a name that an older state of ours uses again.

        Its next attempt parks, is admitted under another epoch or checkpoint, or is
        refused by the signer.
        In the thread that issues, so that no workunit of it is being made meanwhile.
        """
        for attempt, task in lost:
            self.retry(
                task, attempt
            )  # first: the engine's outcome is of no attempt now
        self._take_back([attempt for attempt, _ in lost])
        return len(lost)

    def _expire_parked(self) -> int:
        """End what waited too long for a reviewer; looks once in a while."""
        if time.monotonic() - self._expired_at < EXPIRY_S:
            return 0
        self._expired_at = time.monotonic()
        return self._review_queue.expire()

    def _sweep(self) -> int:
        """Close the attempts of tasks that became final in another way."""
        with self._store.read() as connection:
            orphans = rows.orphaned_attempts(connection)
        if orphans:
            self._take_back(orphans)
            with self._store.write() as connection:
                self._close(connection, orphans)
        return len(orphans)

    def _take_back(self, attempts: Sequence[AttemptRow]) -> None:
        """End attempts' workunits, and what their validators still do for them."""
        workunits = [attempt.workunit for attempt in attempts]
        self._engine.cancel(*workunits)
        for workunit in workunits:
            self._taken_back(workunit)

    def _close(self, connection: Connection, attempts: Sequence[AttemptRow]) -> None:
        """Close attempts; those whose admission may be in the log are explained there."""
        rows.move_attempts(connection, attempts, AttemptState.CLOSED)
        let_go(connection, attempts)
        now = self._clock()
        note_events(
            connection,
            [
                workunit_event(attempt.task_id, attempt.number, now, issued=False)
                for attempt in attempts
                if attempt.state in _ADMITTED
            ],
        )

    def _seal(self) -> int:
        """Fix the statement bytes of new attempts."""
        waiting = self._waiting(AttemptState.CREATED)
        if not waiting:
            return 0
        now = self._clock()
        ready, parked = self._review_queue.split(waiting, now)
        self._review_queue.park(parked)
        facts = self._statements.facts()  # or all wait until an epoch is certified
        sealed: list[AttemptRow] = []
        for attempt, task, reviews in ready:
            try:
                policy = self._review(task)
                fixed = self._statements.seal(
                    task, attempt, policy, now, facts, reviews
                )
                sealed.append(fixed)
            except DatabaseAwayError:
                raise  # that says nothing about the task
            except StoiloError as error:
                # What is wrong with one task must not keep its batch waiting for ever.
                self._give_up(task, attempt, error)
        self._save(sealed, AttemptState.SEALED)
        return len(waiting)

    def _append(self) -> int:
        """Append the leaves; their indices are durable in the log before here."""
        waiting = self._waiting(AttemptState.SEALED)
        if not waiting:
            return 0
        leaves = [attempt.leaf or b"" for attempt, _ in waiting]
        labels = [task.task_id for _, task in waiting]
        # Idempotent by the leaf's digest: after a crash the same leaves get the same places.
        indices = self._log.append_many(leaves, labels)
        logged = [
            rows.replace_attempt(attempt, log_index=index)
            for (attempt, _), index in zip(waiting, indices, strict=True)
        ]
        self._save(logged, AttemptState.LOGGED)
        return len(waiting)

    def _save(self, attempts: Sequence[AttemptRow], state: AttemptState) -> None:
        """Make what a step has gained durable."""
        with self._store.write() as connection:
            rows.save_attempts(connection, attempts, state)

    def _sign(self) -> int:
        """Have the signer admit what a published checkpoint covers."""
        waiting = self._waiting(AttemptState.LOGGED)
        if not waiting:
            return 0
        # I1: the signer is asked only for what a published checkpoint covers. It checks that
        # itself; waiting here saves it from refusing.
        newest = max(attempt.log_index or 0 for attempt, _ in waiting)
        self._log.wait_published(newest, timeout=PUBLISH_TIMEOUT_S)
        proofs = self._log.proofs([one.log_index or 0 for one, _ in waiting])
        answers = self._signer.sign_admissions(
            [
                (attempt.statement or b"", proof)
                for (attempt, _), proof in zip(waiting, proofs, strict=True)
            ]
        )
        signed: list[AttemptRow] = []
        for (attempt, task), proof, answer in zip(
            waiting, proofs, answers, strict=True
        ):
            if isinstance(answer, bytes):
                done = rows.replace_attempt(attempt, proof=proof, envelope=answer)
                signed.append(done)
            else:
                self._refused(task, attempt, answer)
        self._save(signed, AttemptState.SIGNED)
        return len(signed)

    def _refused(self, task: TaskRow, attempt: AttemptRow, error: StoiloError) -> None:
        """Wait, admit anew, or end the task: what the signer's refusal calls for."""
        if error.code in RENEWED_CODES:
            if self._is_outdated(attempt):
                self.retry(task, attempt)
        elif error.code in REVIEW_CODES:
            self.retry(task, attempt)
        elif error.code not in PATIENT_CODES:
            self._give_up(task, attempt, error)

    def _is_outdated(self, attempt: AttemptRow) -> bool:
        """Whether a statement written now would name another epoch or other times."""
        age = self._clock() - (attempt.admitted_at or 0)
        # A fresh statement with the same fate would go round in circles.
        return age >= RENEWAL_S or not self._statements.is_current(attempt)

    def _issue(self) -> int:
        """Create the workunits; an admission that ran out of time gets a new attempt."""
        waiting = self._waiting(AttemptState.SIGNED, free_at=self._clock())
        fresh: Waiting = []
        for attempt, task in waiting:
            if self._is_stale(attempt, task):
                self.retry(task, attempt)
            else:
                fresh.append((attempt, task))
        if fresh:
            specs = self._workunits.specs(fresh)
            works = [Work(*pair, spec) for pair, spec in zip(fresh, specs, strict=True)]
            self._issuer().issue(works)
        return len(waiting)

    def _issuer(self) -> Issuer:
        return Issuer(
            self._store,
            self._engine,
            issued=self._mark_issued,
            give_up=self._give_up,
            renew=self._renew,
            clock=self._clock,
            stopping=self._stopping,
        )

    def _is_stale(self, attempt: AttemptRow, task: TaskRow) -> bool:
        return needs_new_attempt(
            now=self._clock(),
            delay_bound_s=task.spec.redundancy.delay_bound_s,
            not_after=attempt.not_after or 0,
        )

    def _mark_issued(self, fresh: Sequence[tuple[AttemptRow, TaskRow]]) -> None:
        with self._store.write() as connection:
            attempts, now = [attempt for attempt, _ in fresh], self._clock()
            rows.save_attempts(connection, attempts, AttemptState.ISSUED)
            let_go(connection, attempts)
            note_events(
                connection,
                [
                    workunit_event(one.task_id, one.number, now, issued=True)
                    for one in attempts
                ],
            )
            rows.mark_running(connection, [task.task_id for _, task in fresh])

    def retry(self, task: TaskRow, attempt: AttemptRow) -> None:
        """Open the next attempt of `task`, or expire it after `MAX_ATTEMPTS`."""
        now = self._clock()
        with self._store.write() as connection:
            current = rows.find_task(connection, task.task_id)
            if (
                current is None
                or current.state.final
                or current.attempt != attempt.number
            ):
                return
            # The caller's copy may be older than the row; closing explains what the row has.
            newest = rows.find_attempt(connection, task.task_id, attempt.number)
            self._close(connection, [newest or attempt])
            # A task that no volunteer finishes must not fill the log without end.
            if attempt.number >= MAX_ATTEMPTS:
                expired = Outcome(
                    TaskState.EXPIRED,
                    attempt.number,
                    code="STO-R060",
                    error_text="no volunteer finished it while it was admitted",
                )
                finish_task(connection, current, expired, now)
                return
            if current.state is TaskState.RUNNING:
                rows.move_task(connection, current, TaskState.ADMITTING, now)
            rows.add_attempt(connection, current, now)
        self.wake()

    def _give_up(self, task: TaskRow, attempt: AttemptRow, error: StoiloError) -> None:
        """End a task whose attempt can never be admitted."""
        outcome = Outcome(
            TaskState.SYSTEM_ERROR,
            attempt.number,
            error_text=error.message,
            code=error.code,
        )
        with self._store.write() as connection:
            current = rows.find_task(connection, task.task_id)
            if current is not None:
                finish_task(connection, current, outcome, self._clock())


class _Worker(threading.Thread):
    """Repeats its steps while they move rows, then sleeps until woken."""

    def __init__(
        self,
        name: str,
        steps: tuple[Callable[[], int], ...],
        pipeline: AdmissionPipeline,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.steps = steps
        self.wanted = threading.Event()
        self.trouble: StoiloError | None = None
        self._pipeline = pipeline

    def run(self) -> None:
        """Work until the pipeline stops; errors are tried again, never lost."""
        while not self._pipeline.stopping.is_set():
            # Cleared before the work: what comes meanwhile is not overlooked.
            self.wanted.clear()
            moved = self.go()
            if self.trouble is not None:
                LOGGER.warning("%s waits: %s", self.name, self.trouble)
                self._pipeline.stopping.wait(RETRY_S)
            elif moved:
                # Others may wait for what this step has moved.
                self._pipeline.wake()
            else:
                self.wanted.wait(IDLE_S)

    def go(self) -> int:
        """Do each step once; returns how many rows moved.

        One that fails keeps no other from its turn; `trouble` is why the first one did.
        """
        moved, trouble = 0, None
        for step in self.steps:
            try:
                moved += step()
            except StoiloError as error:
                trouble = trouble or error
            except Exception as error:  # the thread's edge: a fault must not end it
                LOGGER.exception("%s failed", self.name)
                fault = InternalError("STO-R034", f"a fault in {type(error)}")
                trouble = trouble or fault
        self.trouble = trouble
        return moved
