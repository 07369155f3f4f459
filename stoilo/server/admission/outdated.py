"""Attempts whose admission or workunit is worth nothing any more: found, to be admitted anew.

Four ways lead there. Something that the statement names was withdrawn. A reviewer was. The
log policy has changed, and volunteers no longer accept the proof's cosignatures. Or the
engine has lost the workunit, because one of the two databases was restored from a backup.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import NO_QUORUM, LogPolicy, has_quorum, open_checkpoint
from stoilo.audit.format.proof import parse_proof
from stoilo.core.errors import TrustError
from stoilo.core.statement import statement_digest
from stoilo.server.db import rows
from stoilo.server.db.records import AttemptState, workunit_name
from stoilo.server.log.public_records import read_sealed
from stoilo.server.release.flavors import named_libraries
from stoilo.server.reviews.book import try_open

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stoilo.executor.verifier.targets import Reviewer, TrustedRelease
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine


LOGGER = logging.getLogger(__name__)
MOST_OPEN: Final = 100_000
INTERVAL_S: Final = 600.0
"""Between two comparisons of all attempts that have a workunit, s."""

_AT_ONCE: Final = 512
_WITH_STATEMENT: Final = (
    AttemptState.SEALED,
    AttemptState.LOGGED,
    AttemptState.SIGNED,
    AttemptState.ISSUED,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What volunteers accept at one moment, as far as it can change under an attempt."""

    epochs: frozenset[int] = frozenset()  # withdrawn, as are the next three
    min_epoch: int = 1
    digests: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()
    reviewers: tuple[Reviewer, ...] = ()  # those whose reviews count
    # (id of a flavor, level) → the libraries that its admissions have to name
    libraries: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    # what they demand of a log proof
    log_policy: LogPolicy = field(default_factory=lambda: LogPolicy(()))

    @classmethod
    def of(cls, trust: TrustedRelease) -> Terms:
        """Return the terms of a release, with the newest statement in force."""
        return cls(
            trust.revoked_epochs,
            trust.min_epoch,
            trust.denied,
            trust.withdrawn_flavors,
            trust.reviewers,
            named_libraries(trust),
            trust.log_policy,
        )

    def void(self, attempt: AttemptRow) -> bool:
        """Whether volunteers would refuse a sealed attempt, or its proof if it has one."""
        payload = attempt.statement or b""
        said = read_sealed(payload)
        named = {
            statement_digest(payload),
            said.task_module,
            said.validator_module,
            said.arguments,
            said.flavor,
            said.level_digest,
            *said.libraries,
            said.policy_digest,
            said.language_digest,
            said.submitter,
            *said.blobs,
        }
        return (
            said.epoch in self.epochs
            or said.epoch < self.min_epoch
            or said.flavor in self.flavors
            or not named.isdisjoint(self.digests)
            or said.libraries
            != self.libraries.get((said.flavor, said.level), said.libraries)
            or not all(try_open(one.encode(), self.reviewers) for one in said.reviewers)
            or not self._is_witnessed(attempt.proof)
        )

    def _is_witnessed(self, proof: bytes | None) -> bool:
        # Without a quorum every proof of the log itself is accepted.
        if proof is None or self.log_policy.quorum == NO_QUORUM:
            return True
        return is_accepted(proof, self.log_policy)


class OutdatedWork:
    """Looks through the attempts on their way whenever the terms have changed.

    Volunteers refuse what is void anyway, once they have the newer release; the server does
    not wait for them. A project that gets witnesses, or takes one out, has workunits under
    way with other cosignatures: most stay good by a retired policy (`LogPolicy.retired`).
    """

    def __init__(self, store: Store, terms: Callable[[], Terms]) -> None:
        self._store = store
        self._terms = terms
        # A restarted server has forgotten what it checked, so it looks once.
        self._checked: Terms | None = None

    def find(self) -> list[tuple[AttemptRow, TaskRow]]:
        """Return the void attempts; none while the terms are those of the last call."""
        terms = self._terms()
        if terms == self._checked:
            return []
        with self._store.read() as connection:
            found = [
                pair
                for state in _WITH_STATEMENT
                for pair in rows.attempts_in(connection, state, MOST_OPEN)
            ]
        # Outside of the transaction: parsing many statements takes its time.
        lost = [
            (attempt, task)
            for attempt, task in found
            if not task.state.final and terms.void(attempt)
        ]
        # Only now, so that a database that was away is asked again.
        self._checked = terms
        return lost


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


class Reconciler:
    """Compares issued attempts with the engine: once at the start, then now and then.

    Server and engine may be of different moments: either database may be restored without
    the other. Then an attempt can stand as issued while the engine has told its outcome
    already, or never heard of it. Its work is done again; nothing is lost. The engine tells
    an outcome before it forgets that it is untold, so between two databases of one moment
    nothing is ever found.
    """

    def __init__(
        self,
        store: Store,  # attempts
        engine: Engine,  # what has their workunits
        # opens the next attempt of a task, unless it has moved on meanwhile
        retry: Callable[[TaskRow, AttemptRow], None],
        clock: Callable[[], float] = time.monotonic,  # monotonic seconds
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
            last = page[-1]
        self._due_at = self._clock() + INTERVAL_S
        return moved

    def _reopen(self, page: Sequence[tuple[str, int]]) -> int:
        names = {workunit_name(*one): one for one in page}
        moved = 0
        for name in sorted(self._engine.settled(names)):
            with self._store.read() as connection:
                found = rows.find_issued(connection, *names[name])
            if found is None:
                continue  # its outcome came between the two questions
            LOGGER.warning("%s: no outcome will come; admitted anew", name)
            self._retry(found[1], found[0])
            moved += 1
        return moved
