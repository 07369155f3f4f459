"""Attempts whose admission or workunit is worth nothing any more: found, to be admitted anew.

Four ways lead there. Something that the statement names was withdrawn. A reviewer was. The
log policy has changed, and volunteers no longer accept the proof's cosignatures. Or the
engine has lost the workunit, because one of the two databases was restored from a backup.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import NO_QUORUM, LogPolicy, has_quorum, open_checkpoint
from stoilo.audit.format.proof import parse_proof
from stoilo.core.errors import TrustError
from stoilo.core.statement import parse_statement, statement_digest
from stoilo.server.db import rows
from stoilo.server.db.records import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.executor.verifier.targets import Reviewer, TrustedRelease
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine
    from stoilo.server.reviews.book import ReviewBook


MOST_OPEN: Final = 100_000
_WITH_STATEMENT: Final = (
    AttemptState.SEALED,
    AttemptState.LOGGED,
    AttemptState.SIGNED,
    AttemptState.ISSUED,
)
TermsT = TypeVar("TermsT")


class _Recheck(Generic[TermsT]):
    """Looks through the attempts on their way whenever the terms have changed.

    Args:
        store: tasks and attempts.
        terms: what holds at this moment.
        harmless: terms under which no attempt is void; None for none.
    """

    states: ClassVar[tuple[AttemptState, ...]]

    def __init__(
        self,
        store: Store,
        terms: Callable[[], TermsT],
        harmless: TermsT | None = None,
    ) -> None:
        self._store = store
        self._terms = terms
        self._harmless = harmless
        # A restarted server has forgotten what it checked, so it looks once.
        self._checked: TermsT | None = None

    @abstractmethod
    def is_void(self, attempt: AttemptRow, terms: TermsT) -> bool:
        """Whether the attempt is worth nothing under `terms`."""

    def find(self) -> list[tuple[AttemptRow, TaskRow]]:
        """Return the void attempts; none while the terms are those of the last call."""
        terms = self._terms()
        if terms == self._checked:
            return []
        lost: list[tuple[AttemptRow, TaskRow]] = []
        if terms != self._harmless:
            with self._store.read() as connection:
                found = [
                    pair
                    for state in self.states
                    for pair in rows.attempts_in(connection, state, MOST_OPEN)
                ]
            # Outside of the transaction: parsing many statements takes its time.
            lost = [
                (attempt, task)
                for attempt, task in found
                if not task.state.final and self.is_void(attempt, terms)
            ]
        # Only now, so that a database that was away is asked again.
        self._checked = terms
        return lost


@dataclass(frozen=True, slots=True)
class WithdrawnTerms:
    """What is withdrawn at one moment, as the `TrustedRelease` in force says."""

    epochs: frozenset[int] = frozenset()
    min_epoch: int = 1
    digests: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()

    def names(self, payload: bytes) -> bool:
        """Whether a part of the admission with this statement's bytes is withdrawn."""
        statement = parse_statement(payload)
        digests = {
            statement_digest(payload),
            statement.task_module,
            statement.validator_module,
            statement.arguments,
            statement.flavor,
            statement.level_digest,
            statement.policy_digest,
            statement.language_digest,
            statement.submitter,
            *statement.blobs,
        }
        return (
            statement.epoch in self.epochs
            or statement.epoch < self.min_epoch
            or statement.flavor in self.flavors
            or not digests.isdisjoint(self.digests)
        )


NOTHING_WITHDRAWN = WithdrawnTerms()


def terms_of(trust: TrustedRelease) -> WithdrawnTerms:
    """Return what a release, with the newest statement in force, withdraws."""
    return WithdrawnTerms(
        trust.revoked_epochs, trust.min_epoch, trust.denied, trust.withdrawn_flavors
    )


class WithdrawnWork(_Recheck[WithdrawnTerms]):
    """Attempts that name something withdrawn.

    Volunteers refuse them anyway once they have the newer statement; the server does not
    wait for them.
    """

    states = _WITH_STATEMENT

    def __init__(self, store: Store, terms: Callable[[], WithdrawnTerms]) -> None:
        super().__init__(store, terms, NOTHING_WITHDRAWN)

    def is_void(self, attempt: AttemptRow, terms: WithdrawnTerms) -> bool:
        """Whether the attempt's statement names something withdrawn."""
        return terms.names(attempt.statement or b"")


class UnreviewedWork(_Recheck["tuple[Reviewer, ...]"]):
    """Attempts with a review whose reviewer the release no longer names."""

    states = _WITH_STATEMENT

    def __init__(self, store: Store, book: ReviewBook) -> None:
        super().__init__(store, lambda: book.reviewers)
        self._book = book

    def is_void(self, attempt: AttemptRow, terms: tuple[Reviewer, ...]) -> bool:
        """Whether a review in the attempt's statement is by nobody of them."""
        return not self._book.holds(attempt, terms)


def is_accepted(proof: bytes, policy: LogPolicy) -> bool:
    """Return whether volunteers will accept the checkpoint in `proof`, of our own making.

    Proofs of today's quorum are known by their signatures' names alone, for there may
    be many; the signer verified each before it signed.
    """
    try:
        checkpoint = parse_proof(proof).checkpoint
        names = {(one.name, one.key_id) for one in parse_note(checkpoint).signatures}
        cosigners = [
            one.name
            for one in policy.witnesses
            if (one.key.name, one.key.key_id) in names
        ]
        if not has_quorum(policy, cosigners):
            open_checkpoint(checkpoint, policy)
    except TrustError:
        return False
    return True


class UnwitnessedWork(_Recheck[LogPolicy]):
    """Attempts whose log proof the policy of today no longer accepts.

    A project that gets witnesses, or takes one out, has workunits under way with other
    cosignatures. Most stay good by a retired policy (`LogPolicy.retired`).
    """

    states = (AttemptState.SIGNED, AttemptState.ISSUED)

    def __init__(self, store: Store, policy: Callable[[], LogPolicy]) -> None:
        super().__init__(store, policy, LogPolicy(()))

    def is_void(self, attempt: AttemptRow, terms: LogPolicy) -> bool:
        """Whether volunteers would refuse the attempt's proof."""
        # Without a quorum every proof of the log itself is accepted.
        return terms.quorum != NO_QUORUM and not is_accepted(
            attempt.proof or b"", terms
        )


LOGGER = logging.getLogger(__name__)

INTERVAL_S: Final = 600.0
"""Between two comparisons of all attempts that have a workunit, s."""

_AT_ONCE: Final = 512


class Reconciler:
    """Compares issued attempts with the engine: once at the start, then now and then.

    Server and engine may be of different moments: either database may be restored without
    the other. Then an attempt can stand as issued while the engine has told its outcome
    already, or never heard of it. Its work is done again; nothing is lost. The engine tells
    an outcome before it forgets that it is untold, so between two databases of one moment
    nothing is ever found.

    Args:
        store: attempts.
        engine: what has their workunits.
        retry: opens the next attempt of a task, unless it has moved on meanwhile.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        retry: Callable[[TaskRow, AttemptRow], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._engine = engine
        self._retry = retry
        self._clock = clock
        self._due_at = float("-inf")

    def reset(self) -> None:
        """Make the next step due."""
        self._due_at = float("-inf")

    def step(self) -> int:
        """Compare, when that is due; returns how many attempts were opened anew.

        Raises:
            StoiloError: a database is away; the step stays due.
        """
        if self._clock() < self._due_at:
            return 0
        moved, last = 0, ("", 0)
        while True:
            with self._store.read() as connection:
                page = rows.issued_after(connection, last, _AT_ONCE)
            if not page:
                break
            moved += self._reopen(page)
            last = (page[-1].task_id, page[-1].number)
        self._due_at = self._clock() + INTERVAL_S
        return moved

    def _reopen(self, page: list[rows.AttemptName]) -> int:
        names = {one.workunit: one for one in page}
        moved = 0
        for name in sorted(self._engine.settled(names)):
            with self._store.read() as connection:
                found = rows.find_issued(connection, names[name])
            if found is None:
                continue  # its outcome came between the two questions
            LOGGER.warning("%s: no outcome will come; admitted anew", name)
            self._retry(found[1], found[0])
            moved += 1
        return moved
