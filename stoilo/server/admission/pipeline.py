"""The admission pipeline: every durable step of an attempt, in batches, resumable.

Three threads (write and log; sign; issue) walk all attempts through the steps of
`stoilo.server.db.records`, so that one batch is signed while the next is logged. Each step
reads the rows that wait for it, does its work idempotently (the log knows its leaves by
digest, the engine its workunits by name) and commits; so kill -9 at any moment costs at
most the repetition of one step, and never a second leaf, workunit or outcome.
Order is the invariant I1: no workunit without a leaf under a published checkpoint.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.background import Repeater
from stoilo.core.errors import StoiloError
from stoilo.server.admission.issuing import Attempts, Issuer, Work
from stoilo.server.admission.outdated import Reconciler
from stoilo.server.db import rows
from stoilo.server.db.records import (
    AttemptState,
    needs_new_attempt,
)
from stoilo.server.db.store import DatabaseAwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.admission.outdated import OutdatedWork
    from stoilo.server.admission.statements import StatementWriter
    from stoilo.server.admission.workunits import WorkunitWriter
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine
    from stoilo.server.log.leaves import LeafBook
    from stoilo.server.log.ports import AdmissionSigner, Log
    from stoilo.server.reviews.book import ReviewBook


BATCH = 256
IDLE_S = 0.5
SWEEP_S = 0.5
"""Shortest time between two searches for attempts whose task has ended otherwise."""
EXPIRY_S = 60.0
"""Shortest time between two searches for tasks that waited too long for a reviewer."""
PUBLISH_TIMEOUT_S = 5.0
NEXT = {"_append": "admission-sign", "_sign": "admission-issue"}
"""Which worker the rows of a step wait for. Leaves of what has happened are looked for every
`IDLE_S`, so that those of many tasks share an append, a checkpoint and its signature."""

PATIENT_CODES = frozenset({"STO-K023", "STO-L013"})
"""The signer's refusals that pass with time (the epoch's rate; missing witnesses)."""

NO_EPOCH = "STO-K024"
RENEWED_CODES = frozenset({"STO-A040", "STO-A043", NO_EPOCH})
"""Refusals of a statement's times or epoch: another statement of the task may pass."""

REVIEW_CODES = frozenset({"STO-A055"})
"""Refusals of a statement's reviews: the task is parked until there are better ones."""

RENEWAL_S = 300
"""A statement younger than this is not replaced while its epoch is the current one."""

Waiting = list[tuple["AttemptRow", "TaskRow"]]


class AdmissionPipeline:
    """Moves attempts from ``created`` to ``issued``, and leaves into the log.

    Attributes:
        attempts: what becomes of them.
        workers: the threads; each does its steps in turn, whatever becomes of one.
        signed: admissions since the start.
        refused: the signer's refusals since the start.
    """

    def __init__(
        self,
        store: Store,  # tasks and attempts
        log: Log,  # the audit log's writer
        signer: AdmissionSigner,  # client of the signer process
        engine: Engine,  # where workunits go
        *,
        statements: StatementWriter,  # fixes statement bytes
        workunits: WorkunitWriter,  # turns a signed attempt into a `WorkunitSpec`
        leaves: LeafBook,  # results and refusals that wait for the log
        # the digest of the policy that admits a task today
        review: Callable[[TaskRow], str],
        reviews: ReviewBook,  # who waits for a reviewer
        clock: Callable[[], int],  # seconds since 1970
        outdated: OutdatedWork,  # work that volunteers no longer accept
        # is told the names of workunits that nobody wants any more
        taken_back: Callable[[str], None],
    ) -> None:
        self._store = store
        self._log = log
        self._signer = signer
        self._statements = statements
        self._workunits = workunits
        self._leaves = leaves
        self._review = review
        self._reviews = reviews
        self._outdated = outdated
        self._clock = clock
        self._stopping = threading.Event()
        self.signed = self.refused = 0
        self._swept_at = 0.0
        self._expired_at = float("-inf")
        self.attempts = Attempts(store, engine, clock, self.wake, taken_back)
        self._issuer = Issuer(store, engine, self.attempts, clock, self._stopping)
        self._reconciler = Reconciler(store, engine, self.attempts.retry)
        # One thread a kind of waiting: for the disk, the signer, the engine. So one batch is
        # signed while the next is logged, and an engine that is away stops no sealing.
        self._steps: dict[str, tuple[Callable[[], int], ...]] = {
            "admission-log": (reviews.release_once, self._seal, self._append),
            "admission-sign": (self._sign,),
            "admission-issue": (self._issue, self._sweep_now_and_then),
            "admission-leaves": (self._log_leaves,),
            "admission-reconcile": (self._reconciler.step,),
        }
        self.workers = [
            Repeater(name, [self._waking(step) for step in steps], IDLE_S)
            for name, steps in self._steps.items()
        ]

    def _waking(self, step: Callable[[], int]) -> Callable[[], int]:
        """Return a step after which the next worker looks for what it has moved.

        It is done again at once only after a full batch: who stores more rows wakes us.
        """

        @functools.wraps(step)
        def waking() -> int:
            moved, follower = step(), NEXT.get(step.__name__)
            if moved and follower:
                self.wake(follower)
            return moved // BATCH

        return waking

    @property
    def trouble(self) -> Exception | None:
        """What keeps a step from going on at this moment."""
        return next((one.trouble for one in self.workers if one.trouble), None)

    def start(self) -> None:
        """Begin in own threads; what a killed server left half done comes first."""
        for worker in self.workers:
            worker.start()

    def wake(self, *names: str) -> None:
        """Say that rows have changed: to these workers, to all where none is named."""
        for worker in self.workers:
            if not names or worker.name in names:
                worker.wake()

    def stop(self) -> None:
        """Finish the steps in progress and end the threads."""
        self._stopping.set()
        for worker in self.workers:
            worker.stop()

    def run_once(self) -> int:
        """Do every step once, in order, in this thread; returns how many rows moved."""
        self._swept_at, self._expired_at = 0.0, float("-inf")
        self._reconciler.reset()
        return sum(step() for steps in self._steps.values() for step in steps)

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
        moved = self.attempts.sweep() + self._expire_parked()
        moved += self.attempts.renew(self._outdated.find())
        self._swept_at = time.monotonic()
        return moved

    def _expire_parked(self) -> int:
        """End what waited too long for a reviewer; looks once in a while."""
        if time.monotonic() - self._expired_at < EXPIRY_S:
            return 0
        self._expired_at = time.monotonic()
        return self._reviews.expire()

    def _seal(self) -> int:
        """Fix the statement bytes of new attempts."""
        waiting = self._waiting(AttemptState.CREATED)
        if not waiting:
            return 0
        now = self._clock()
        ready, parked = self._reviews.split(waiting, now)
        self._reviews.park(parked)
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
                self.attempts.give_up(task, attempt, error)
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
            msgspec.structs.replace(attempt, log_index=index)
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
                done = msgspec.structs.replace(attempt, proof=proof, envelope=answer)
                signed.append(done)
            else:
                self._refused(task, attempt, answer)
        self.signed += len(signed)
        self.refused += len(waiting) - len(signed)
        self._save(signed, AttemptState.SIGNED)
        return len(signed)

    def _refused(self, task: TaskRow, attempt: AttemptRow, error: StoiloError) -> None:
        """Wait, admit anew, or end the task: what the signer's refusal calls for."""
        if error.code in RENEWED_CODES:
            if self._is_outdated(attempt):
                self.attempts.retry(task, attempt)
        elif error.code in REVIEW_CODES:
            self.attempts.retry(task, attempt)
        elif error.code not in PATIENT_CODES:
            self.attempts.give_up(task, attempt, error)

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
                self.attempts.retry(task, attempt)
            else:
                fresh.append((attempt, task))
        if fresh:
            specs = self._workunits.specs(fresh)
            works = [Work(*pair, spec) for pair, spec in zip(fresh, specs, strict=True)]
            self._issuer.issue(works)
        return len(waiting)

    def _is_stale(self, attempt: AttemptRow, task: TaskRow) -> bool:
        return needs_new_attempt(
            now=self._clock(),
            delay_bound_s=task.spec.redundancy.delay_bound_s,
            not_after=attempt.not_after or 0,
        )
