"""Signed statements that travel with a task: reviews for it, revocations against it.

A review is a person's signature, made on their own machine: a DSSE envelope of its own payload
type, carried as text inside the statement. It names both modules, level, flavor, limits, the
arguments' digest or ``any``, and an end. Nobody reviews himself: a reviewer's own accounts
stand beside his key in the release.

A workunit's revocation statement must be signed by a key that the release's offline revocation
role names, stand in the log, and be at most 24 hours older than its admission. A host never
believes less than it has believed: statements that it saw before hold on, until the offline
role settles them (`RevocationFile.settled`) or replaces the online key. Every function here is
pure; the host's memory is `stoilo.executor.verifier.host_verifier`.
Trust: hostile until a key of the release has verified it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import msgspec

from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import (
    Leaf,
    LeafKind,
    ProvenLeaf,
    check_proof,
    render_leaf,
)
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS, RunLimits, lowest_limits
from stoilo.core.signatures import (
    SigningKey,
    parse_envelope,
    parse_strict_json,
    render_envelope,
    sign_envelope,
    verify_envelope,
)
from stoilo.core.statement import (
    FRESH_S,
    RECORD_PAYLOAD,
    RevocationStatement,
    Statement,
    parse_revocation,
    revocation_digest,
    split_revocations,
)
from stoilo.executor.verifier.targets import Reviewer, TrustedRelease

REVIEW_PAYLOAD: Final = "application/vnd.stoilo.review+json"
ANY_ARGUMENTS: Final = "any"
MAX_REVIEW_BYTES: Final = 8 * 1024
"""Longest review as text, in a statement and on its way to the server."""

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Reviewable(Protocol):
    """What a review can be about: an admission's statement, or a task before it."""

    @property
    def task_module(self) -> str:
        """Digest of the source that runs."""

    @property
    def validator_module(self) -> str:
        """Digest of the validators' source."""

    @property
    def level(self) -> str:
        """Name of the level."""

    @property
    def flavor(self) -> str:
        """Id of the flavor's manifest."""

    @property
    def limits(self) -> RunLimits:
        """What the run may use."""

    @property
    def arguments(self) -> str:
        """Digest of the encoded arguments."""

    @property
    def blobs(self) -> tuple[str, ...]:
        """Digests of the blobs that the arguments refer to."""


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a reviewer signs.

    Attributes:
        task_module: digest (plain SHA-256) of the source that runs.
        validator_module: digest of the validators' source.
        level: name of the level.
        flavor: id of the flavor's manifest.
        limits: the most that a run may use.
        arguments: see `digest_arguments`, or ``any``.
        not_after: Unix seconds; no run starts later on the strength of this review.
    """

    task_module: _Digest
    validator_module: _Digest
    level: str
    flavor: _Digest
    limits: RunLimits
    arguments: str
    not_after: Annotated[int, msgspec.Meta(ge=1, le=2**40)]

    def covers(self, work: Reviewable) -> bool:
        """Whether this review is about exactly this work, within its limits."""
        named = digest_arguments(work.arguments, work.blobs)
        return (
            self.task_module == work.task_module
            and self.validator_module == work.validator_module
            and self.level == work.level
            and self.flavor == work.flavor
            and self.arguments in {ANY_ARGUMENTS, named}
            and lowest_limits(self.limits, work.limits) == work.limits
        )


class OpenedReview(msgspec.Struct, frozen=True):
    """A review whose signature holds, and by whom."""

    review: Review
    reviewer: Reviewer


def digest_arguments(arguments: str, blobs: Sequence[str]) -> Digest:
    """Return what stands for arguments in a review.

    Encoded arguments refer to blobs by place, so their digest alone would leave open
    which blobs those are: with blobs it is the digest of all names, one a line.
    """
    if not blobs:
        return Digest(arguments)
    return content_digest("\n".join((arguments, *blobs)).encode())


def sign_review(review: Review, key: SigningKey, *, keyid: str = "") -> str:
    """Return the review as text for `Statement.reviewers`."""
    payload = msgspec.json.encode(review)
    envelope = sign_envelope(payload, [(keyid, key)], REVIEW_PAYLOAD)
    return render_envelope(envelope).decode()


def open_review(text: bytes, reviewers: Sequence[Reviewer]) -> OpenedReview:
    """Return the review in hostile `text`, once a known reviewer's signature holds.

    Raises:
        TrustError: STO-A055, or the codes of `parse_envelope`.
    """
    if len(text) > MAX_REVIEW_BYTES:
        raise TrustError("STO-A055", "a review is too large")
    envelope = parse_envelope(text)
    for reviewer in reviewers:
        try:
            payload = verify_envelope(
                envelope, [reviewer.key], payload_type=REVIEW_PAYLOAD
            )
        except TrustError:
            continue
        return OpenedReview(_parse_review(payload), reviewer)
    raise TrustError("STO-A055", "a review is not signed by a known reviewer")


def check_reviews(
    statement: Statement, reviewers: Sequence[Reviewer], clock: int
) -> int:
    """Return how many distinct reviewers signed; every review carried must hold.

    Raises:
        TrustError: STO-A055, or the codes of `parse_strict_json`.
    """
    signed: set[bytes] = set()
    for text in statement.reviewers:
        opened = open_review(text.encode(), reviewers)
        if not opened.review.covers(statement) or clock > opened.review.not_after:
            raise TrustError("STO-A055", "a review is about other work or has expired")
        if statement.submitter in opened.reviewer.accounts:
            raise TrustError("STO-A055", "the reviewer has reviewed a task of his own")
        signed.add(opened.reviewer.key.identity)
    return len(signed)


def _parse_review(payload: bytes) -> Review:
    """Return verified review bytes as a record."""
    document = parse_strict_json(payload, max_bytes=BOUNDS.review_bytes, what="review")
    try:
        return msgspec.convert(document, type=Review)
    except msgspec.ValidationError as error:
        raise TrustError("STO-A055", f"a review is malformed: {error}") from error


ONLINE: Final = "online"
SKEW_S: Final = 24 * 3600
"""How far a volunteer's clock may lag behind the project's."""

SETTLE_S: Final = 3600
"""How far witnesses' clocks and the server's may differ."""

_NOT_IN_LOG: Final = frozenset({"STO-L020", "STO-L010"})


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
        TrustError: STO-A071 missing, malformed, not signed by the
            online revocation key, not in the log, STO-A074 dated after its own
            witnesses, STO-A071 on an offline list
            that this host does not know, another project's; the log's codes
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
            "STO-A071", f"the revocation statement is not genuine: {error.message}"
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
        TrustError: STO-A071 it does not; the log's codes for its checkpoint.
    """
    try:
        return check_proof(proof, revocation_leaf(payload), policy)
    except TrustError as error:
        if error.code in _NOT_IN_LOG:
            raise TrustError(
                "STO-A071", "the revocation statement does not stand in the log"
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
            and nobody settled; two statements of one number.
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
        TrustError: STO-A074 too old, from the future, STO-A076 its number is
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
