"""Work that was admitted before something in it was withdrawn: found, and taken back.

Volunteers refuse it anyway once they have the newer statement; the server does not wait
for them. Looks only after what is withdrawn has changed, and after a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.statement import parse_statement, statement_digest
from stoilo.server.db import rows
from stoilo.server.db.states import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.executor.verifier.release.targets import TrustedRelease
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store

__all__ = ["NOTHING_WITHDRAWN", "WithdrawnTerms", "WithdrawnWork", "terms_of"]

MOST_OPEN = 100_000
_ON_THEIR_WAY = (
    AttemptState.SEALED,
    AttemptState.LOGGED,
    AttemptState.SIGNED,
    AttemptState.ISSUED,
)


@dataclass(frozen=True, slots=True)
class WithdrawnTerms:
    """What is withdrawn at one moment; see `executor.verifier.release.TrustedRelease`."""

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


class WithdrawnWork:
    """Attempts on their way that name something withdrawn.

    Args:
        store: tasks and attempts.
        terms: what is withdrawn at this moment.
    """

    def __init__(self, store: Store, terms: Callable[[], WithdrawnTerms]) -> None:
        self._store = store
        self._terms = terms
        self._checked: WithdrawnTerms | None = None

    def find(self) -> list[tuple[AttemptRow, TaskRow]]:
        """Return them; nothing while the terms are those of the last call."""
        terms = self._terms()
        if terms == self._checked:
            return []
        lost: list[tuple[AttemptRow, TaskRow]] = []
        if terms != NOTHING_WITHDRAWN:
            with self._store.read() as connection:
                found = [
                    pair
                    for state in _ON_THEIR_WAY
                    for pair in rows.attempts_in(connection, state, MOST_OPEN)
                ]
            lost = [
                (attempt, task)
                for attempt, task in found
                if not task.state.final and terms.names(attempt.statement or b"")
            ]
        self._checked = terms
        return lost
