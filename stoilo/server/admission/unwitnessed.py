"""Work whose log proof the policy of today no longer accepts: found, and admitted anew.

A project that gets witnesses, or takes one out, has workunits under way whose proofs
carry other cosignatures. Most stay good by a retired policy
(`stoilo.audit.format.policy_history`); volunteers would refuse the others. Looks only
after the policy has changed, and after a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import NO_QUORUM, LogPolicy, has_quorum, open_checkpoint
from stoilo.audit.format.proof import parse_proof
from stoilo.core.errors import TrustError
from stoilo.server.db import rows
from stoilo.server.db.states import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store

__all__ = ["UnwitnessedWork", "is_accepted"]

MOST_OPEN = 100_000
_WITH_PROOF = (AttemptState.SIGNED, AttemptState.ISSUED)


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


class UnwitnessedWork:
    """Attempts on their way whose proof has become worthless.

    Args:
        store: tasks and attempts.
        policy: the release's log policy at this moment, with its older ones.
    """

    def __init__(self, store: Store, policy: Callable[[], LogPolicy]) -> None:
        self._store = store
        self._policy = policy
        self._checked = LogPolicy(())

    def find(self) -> list[tuple[AttemptRow, TaskRow]]:
        """Return them; nothing while the policy is that of the last call."""
        policy = self._policy()
        if policy == self._checked:
            return []
        lost: list[tuple[AttemptRow, TaskRow]] = []
        if policy.quorum != NO_QUORUM:
            with self._store.read() as connection:
                found = [
                    pair
                    for state in _WITH_PROOF
                    for pair in rows.attempts_in(connection, state, MOST_OPEN)
                ]
            lost = [
                (attempt, task)
                for attempt, task in found
                if not task.state.final
                and not is_accepted(attempt.proof or b"", policy)
            ]
        self._checked = policy
        return lost
