"""Revocation statements on the volunteer's side: genuine, logged, fresh, never less.

A workunit's statement must be signed by a key that the release's offline revocation role
names, stand in the log, and be at most 24 hours older than its admission. A host never
believes less than it has believed: statements that it saw before hold on, until the
offline role settles them (`RevocationFile.settled`) or replaces the online key. Every
function here is pure; the host's memory is `stoilo.executor.verifier.host_verifier`.
Trust: the file is hostile; `TrustedRelease` and what was seen are this host's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from stoilo.audit.format.facts import LeafKind
from stoilo.audit.format.leaf import Leaf, render_leaf
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import ProvenLeaf, check_proof
from stoilo.core.errors import TrustError
from stoilo.core.signatures import parse_envelope, verify_envelope
from stoilo.core.statement import (
    FRESH_S,
    RECORD_PAYLOAD,
    RevocationStatement,
    parse_revocation,
    revocation_digest,
    split_revocations,
)
from stoilo.executor.verifier.targets import TrustedRelease

ONLINE: Final = "online"
SKEW_S: Final = 24 * 3600
"""How far a volunteer's clock may lag behind the project's."""

SETTLE_S: Final = 3600
"""How far witnesses' clocks and the server's may differ."""

_NOT_IN_LOG: Final = frozenset({"STO-L020", "STO-L022"})


@dataclass(frozen=True, slots=True)
class LoggedRevocations:
    """A statement whose signature and log proof hold."""

    statement: RevocationStatement
    proven: ProvenLeaf


@dataclass(frozen=True, slots=True)
class SeenRevocations:
    """The newest statement that a host has seen, and the keys (hex) that could sign."""

    statement: RevocationStatement
    keys: tuple[str, ...]


def open_revocations(data: bytes, trust: TrustedRelease) -> LoggedRevocations:
    """Return the statement of a workunit's file once signature and log proof hold.

    Raises:
        TrustError: STO-A071 missing, STO-A071 malformed, STO-A072 not signed by the
            online revocation key, STO-A073 not in the log, STO-A074 dated after its own
            witnesses, STO-A071 on an offline list
            that this host does not know, STO-A071 another project's; the log's codes
            for a checkpoint that is not to be trusted.
    """
    envelope_text, proof = split_revocations(data)
    try:
        envelope = parse_envelope(envelope_text)
    except TrustError as error:
        raise TrustError("STO-A071", f"the revocations: {error.message}") from error
    try:
        payload = verify_envelope(
            envelope, trust.revocation_keys, payload_type=RECORD_PAYLOAD
        )
    except TrustError as error:
        raise TrustError(
            "STO-A072", f"the revocation statement is not genuine: {error.message}"
        ) from error
    statement = parse_revocation(payload)
    if statement.issuer != ONLINE:
        raise TrustError("STO-A071", "the statement is not one of the online key")
    if statement.origin != trust.origin:
        raise TrustError("STO-A071", "the revocations are another project's")
    if statement.base > trust.revocation_version:
        raise TrustError(
            "STO-A071",
            f"the revocations stand on offline list {statement.base}; the release "
            f"holds {trust.revocation_version}",
        )
    proven = prove_revocation(payload, proof, trust.log_policy)
    cosigned = proven.checkpoint_time
    if cosigned is not None and statement.time > cosigned + SETTLE_S:
        raise TrustError(
            "STO-A074", "the revocation statement is dated after its witnesses saw it"
        )
    return LoggedRevocations(statement, proven)


def prove_revocation(payload: bytes, proof: bytes, policy: LogPolicy) -> ProvenLeaf:
    """Return where the statement of these bytes stands in the log.

    Raises:
        TrustError: STO-A073 it does not; the log's codes for its checkpoint.
    """
    try:
        return check_proof(proof, revocation_leaf(payload), policy)
    except TrustError as error:
        if error.code in _NOT_IN_LOG:
            raise TrustError(
                "STO-A073", "the revocation statement does not stand in the log"
            ) from error
        raise


def revocation_leaf(payload: bytes) -> bytes:
    """Return the leaf of the statement with these bytes; raises ``STO-A071``."""
    statement = parse_revocation(payload)
    return render_leaf(
        Leaf(
            kind=LeafKind.REVOCATION,
            digest=revocation_digest(payload),
            epoch=str(statement.epoch),
            time=statement.time,
        )
    )


def newest_seen(
    seen: SeenRevocations | None, new: RevocationStatement, trust: TrustedRelease
) -> SeenRevocations:
    """Return what the host has seen, with `new` (verified) taken into account.

    Replacing the online key offline drops what was seen under the old one: that is how
    a project recovers when a thief has used up the sequence numbers.

    Raises:
        TrustError: STO-A076 `new`, or what was seen, lacks what the other withdrew
            and nobody settled; STO-A076 two statements of one number.
    """
    keys = tuple(sorted(key.raw.hex() for key in trust.revocation_keys))
    if seen is None or seen.keys != keys:
        return SeenRevocations(new, keys)
    old = seen.statement
    if new.sequence == old.sequence and new != old:
        raise TrustError(
            "STO-A076", f"there are two revocation statements {new.sequence}"
        )
    first, second = sorted((old, new), key=lambda one: one.sequence)
    if first.sequence > trust.revocations_settled and not second.covers(first):
        raise TrustError(
            "STO-A076",
            f"revocation statement {second.sequence} lacks what {first.sequence} "
            "withdrew, and the offline role did not settle it",
        )
    return SeenRevocations(second, keys)


def admission_age(admitted_at: int, checkpoint_time: int | None) -> int:
    """Return when an admission was made at the earliest, by the log's witnesses."""
    return max(admitted_at, checkpoint_time or 0)


def check_revocation_age(
    statement: RevocationStatement,
    *,
    admitted_at: int,
    checkpoint_time: int | None,
    clock: int,
    seen: RevocationStatement,
) -> None:
    """Refuse a workunit whose statement was old when it was admitted.

    A statement older than one seen here is honest when the work was admitted before the
    newer one: it waited in a queue, and is judged by the newer.

    `statement`: the workunit's, verified.
    `admitted_at`: of the admission, Unix seconds; may be a thief's lie.
    `checkpoint_time`: when witnesses cosigned the admission; None without any.
    `clock`: Unix seconds, at least every verified cosignature time.

    Raises:
        TrustError: STO-A074 too old, STO-A074 from the future, STO-A076 its number is
            lower than one seen here before the work was admitted.
    """
    if statement.time > clock + SKEW_S:
        raise TrustError("STO-A074", "the revocation statement lies in the future")
    if statement.time < admission_age(admitted_at, checkpoint_time) - FRESH_S:
        raise TrustError(
            "STO-A074",
            "the revocation statement is more than 24 hours older than the admission",
        )
    later = admitted_at > seen.time or (checkpoint_time or 0) > seen.time + SETTLE_S
    if statement.sequence < seen.sequence and later:
        raise TrustError(
            "STO-A076",
            f"revocation statement {statement.sequence} came with work admitted after "
            f"statement {seen.sequence}",
        )


def in_force(
    trust: TrustedRelease, statement: RevocationStatement | None
) -> TrustedRelease:
    """Return `trust` with what `statement` withdraws, unless that is settled."""
    if statement is None or statement.sequence <= trust.revocations_settled:
        return trust
    denied = trust.denied | frozenset(statement.digests)
    return dataclasses.replace(
        trust,
        denied=denied,
        revoked_epochs=trust.revoked_epochs | frozenset(statement.epochs),
        min_epoch=max(trust.min_epoch, statement.min_epoch),
        withdrawn_flavors=trust.withdrawn_flavors | frozenset(statement.flavors),
        reviewers=tuple(
            one for one in trust.reviewers if one.key.raw.hex() not in denied
        ),
    )
