"""Which revocation statement is due, and what the log tells of an offline list. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.core.revocation import (
    MAX_DIGESTS,
    MAX_EPOCHS,
    MAX_FLAVORS,
    RevocationStatement,
)
from stoilo.server.revocation.withdrawals import merge_wishes

if TYPE_CHECKING:
    from stoilo.executor.verifier.release.targets import TrustedRelease

__all__ = ["DRAFT_S", "REISSUE_S", "next_statement", "offline_records"]

REISSUE_S: Final = 12 * 3600
"""A statement is replaced when it is older than this, s."""

DRAFT_S: Final = 120
"""A logged statement that could not be signed is tried again for so long, s."""


def next_statement(
    last: RevocationStatement | None,
    wishes: RevocationStatement | None,
    trust: TrustedRelease,
    now: int,
) -> RevocationStatement | None:
    """Return the statement to issue now; None while `last` serves. Pure.

    Args:
        last: the newest statement signed by the present online key.
        wishes: what is to be added, as a statement; None for nothing.
        trust: the release, without anything withdrawn online.
        now: Unix seconds.
    """
    settled = last is None or last.sequence <= trust.revocations_settled
    kept = None if settled else last
    wanted = merge_wishes(kept, wishes)
    serves = (
        last is not None
        and last.base == trust.revocation_version
        and last.offline == trust.revocation_digest
        and now - REISSUE_S < last.time <= now + DRAFT_S
        and (wishes is None or (kept is not None and kept.covers(wishes)))
    )
    if serves:
        return None
    floor = max(last.sequence if last else 0, trust.revocations_settled)
    return RevocationStatement(
        origin=trust.origin,
        time=now,
        epoch=_epoch_at(trust, now),
        issuer="online",
        sequence=floor + 1,
        base=trust.revocation_version,
        offline=trust.revocation_digest,
        epochs=wanted.epochs,
        min_epoch=wanted.min_epoch,
        digests=wanted.digests,
        flavors=wanted.flavors,
    )


def offline_records(trust: TrustedRelease, now: int) -> list[RevocationStatement]:
    """Return what the log tells of an offline list: one record, more for a long list.

    Args:
        trust: the release, without anything withdrawn online.
        now: Unix seconds.
    """
    digests = sorted(trust.denied)
    flavors = sorted(trust.withdrawn_flavors)
    epochs = sorted(trust.revoked_epochs)
    count = max(
        1,
        -(-len(digests) // MAX_DIGESTS),
        -(-len(flavors) // MAX_FLAVORS),
        -(-len(epochs) // MAX_EPOCHS),
    )
    return [
        RevocationStatement(
            origin=trust.origin,
            time=now,
            epoch=_epoch_at(trust, now),
            issuer="offline",
            sequence=trust.revocations_settled,
            base=trust.revocation_version,
            offline=trust.revocation_digest,
            epochs=tuple(epochs[part * MAX_EPOCHS : (part + 1) * MAX_EPOCHS]),
            min_epoch=trust.min_epoch,
            digests=tuple(digests[part * MAX_DIGESTS : (part + 1) * MAX_DIGESTS]),
            flavors=tuple(flavors[part * MAX_FLAVORS : (part + 1) * MAX_FLAVORS]),
        )
        for part in range(count)
    ]


def _epoch_at(trust: TrustedRelease, now: int) -> int:
    """Return the newest epoch that has begun, revoked or not."""
    begun = [one.number for one in trust.epochs if one.not_before <= now]
    return max(begun, default=1)
