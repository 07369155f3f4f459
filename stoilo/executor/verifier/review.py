"""Reviews: a person's signature, made on their own machine, that a task may be run.

A review is a DSSE envelope of its own payload type, carried as text inside the statement.
It names both modules, level, flavor, limits, the arguments' digest or ``any``, and an end.
Nobody reviews himself: a reviewer's own accounts stand beside his key in the release.
Trust: hostile until one of the release's reviewer keys has verified it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

import msgspec

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS, RunLimits, lowest_limits
from stoilo.core.signatures import (
    SigningKey,
    parse_envelope,
    render_envelope,
    sign_envelope,
    verify_envelope,
)
from stoilo.core.statement import Statement
from stoilo.core.strict_json import parse_strict_json
from stoilo.executor.verifier.targets import Reviewer

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
