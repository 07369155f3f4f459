"""Reviews: a person's signature, made on their own machine, that a task may be run.

A review is a DSSE envelope of its own payload type, carried as text inside the statement.
It names both modules, level, flavor, limits, the arguments' digest or ``any``, and an end.
Trust: hostile until one of the release's reviewer keys has verified it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from stoilo.core.dsse import (
    SigningKey,
    parse_envelope,
    render_envelope,
    sign_envelope,
    verify_envelope,
)
from stoilo.core.ed25519 import PublicKey
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS, RunLimits, lowest_limits
from stoilo.core.statement import Statement
from stoilo.core.strictjson import parse_strict_json

__all__ = ["ANY_ARGUMENTS", "REVIEW_PAYLOAD", "Review", "check_reviews", "sign_review"]

REVIEW_PAYLOAD: Final = "application/vnd.stoilo.review+json"
ANY_ARGUMENTS: Final = "any"

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a reviewer signs; digests plain SHA-256, `not_after` in Unix seconds."""

    task_module: _Digest
    validator_module: _Digest
    level: str
    flavor: _Digest
    limits: RunLimits
    arguments: str
    not_after: Annotated[int, msgspec.Meta(ge=1, le=2**40)]

    def covers(self, statement: Statement) -> bool:
        """Whether this review is about exactly this work, within its limits."""
        return (
            self.task_module == statement.task_module
            and self.validator_module == statement.validator_module
            and self.level == statement.level
            and self.flavor == statement.flavor
            and self.arguments in {ANY_ARGUMENTS, statement.arguments}
            and lowest_limits(self.limits, statement.limits) == statement.limits
        )


def sign_review(review: Review, key: SigningKey, *, keyid: str = "") -> str:
    """Return the review as text for `Statement.reviewers`."""
    payload = msgspec.json.encode(review)
    envelope = sign_envelope(payload, [(keyid, key)], REVIEW_PAYLOAD)
    return render_envelope(envelope).decode()


def check_reviews(
    statement: Statement, reviewers: Sequence[PublicKey], clock: int
) -> int:
    """Return how many distinct reviewers signed; every review carried must hold.

    Raises:
        TrustError: STO-A055, or the codes of `parse_strict_json`.
    """
    signed: set[bytes] = set()
    for text in statement.reviewers:
        signed.add(_check_review(text, statement, reviewers, clock))
    return len(signed)


def _check_review(
    text: str, statement: Statement, reviewers: Sequence[PublicKey], clock: int
) -> bytes:
    """Return the identity of the reviewer who signed `text`."""
    envelope = parse_envelope(text.encode())
    for reviewer in reviewers:
        try:
            payload = verify_envelope(envelope, [reviewer], payload_type=REVIEW_PAYLOAD)
        except TrustError:
            continue
        review = _parse_review(payload)
        if not review.covers(statement) or clock > review.not_after:
            raise TrustError("STO-A055", "a review is about other work or has expired")
        return reviewer.identity
    raise TrustError("STO-A055", "a review is not signed by a known reviewer")


def _parse_review(payload: bytes) -> Review:
    """Return verified review bytes as a record."""
    document = parse_strict_json(
        payload, max_bytes=BOUNDS.result_header_bytes, what="review"
    )
    try:
        return msgspec.convert(document, type=Review)
    except msgspec.ValidationError as error:
        raise TrustError("STO-A055", f"a review is malformed: {error}") from error
