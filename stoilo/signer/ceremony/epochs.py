"""Until when gate epochs of a proposal are open without a gap: pure."""

from __future__ import annotations

from typing import Final

from stoilo.executor.verifier.release.targets import (
    EpochFile,
    EpochsFile,
    RevocationFile,
    read_target,
)
from stoilo.executor.verifier.release.trust import EPOCHS_FILE, REVOCATION_FILE
from stoilo.signer.ceremony.proposal import Proposal

__all__ = ["open_until"]

_NOTHING: Final = b"{}"


def open_until(proposal: Proposal, now: int) -> int:
    """Return until when an epoch is open from `now` on, Unix seconds; 0: none is open.

    Withdrawn epochs do not count: whoever withdraws the present one sees that no work can
    be admitted before the next begins.

    Raises:
        TrustError: ``STO-K013``, ``STO-K052`` for what cannot be read.
    """
    listed = proposal.target(EPOCHS_FILE) or _NOTHING
    denied = read_target(
        proposal.target(REVOCATION_FILE) or _NOTHING, RevocationFile, REVOCATION_FILE
    )
    epochs = []
    for number in read_target(listed, EpochsFile, EPOCHS_FILE).epochs:
        name = f"gate/{number}.json"
        data = proposal.target(name)
        if data and number >= denied.min_epoch and number not in denied.epochs:
            epochs.append(read_target(data, EpochFile, name))
    until = 0
    for epoch in sorted(epochs, key=lambda one: one.not_before):
        if epoch.not_before <= max(until, now) < epoch.not_after:
            until = max(until, epoch.not_after)
    return until
