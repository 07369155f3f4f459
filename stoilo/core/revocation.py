"""Revocation statements: what a project withdrew since its last offline release.

The offline list (TUF role ``revocation``) and the newest statement hold together. A
statement is signed online, so it can only add; it is public and holds digests and numbers
only. What is signed, and what the log's leaf names, is SHA-256 of the PAE of its bytes.

    stoilo-revocations/v1 LF  DSSE envelope, one line LF  tlog-proof

is the file that travels with each workunit (`split_revocations`).
Trust: bytes are hostile until signature and proof hold (`stoilo.executor.verifier.revocation`).
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest
from stoilo.core.dsse import pae
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import parse_strict_json


RECORD_PAYLOAD: Final = "application/vnd.stoilo.record+json"
"""Payload type of every public record in the log; this is one of them."""

FRESH_S: Final = 24 * 3600
"""How much older than its admission a workunit's statement may be, s."""

MAX_EPOCHS: Final = 64
MAX_DIGESTS: Final = 160
MAX_FLAVORS: Final = 32
"""Together they keep a statement within a public record's 16 KiB."""

MAX_SEQUENCE: Final = 2**53 - 1
MAX_REVOCATIONS_BYTES: Final = BOUNDS.envelope_bytes + BOUNDS.proof_bytes
_FIRST_LINE: Final = b"stoilo-revocations/v1\n"

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class RevocationStatement(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="record",
    tag="revocation",
):
    """What is withdrawn, beyond the offline list that it stands on.

    Attributes:
        origin: the project, equal to its log's origin.
        time: when it was issued, Unix seconds; also its leaf's time.
        epoch: the newest gate epoch then; also its leaf's epoch.
        issuer: ``online`` adds; ``offline`` tells the log of a new offline list, and is
            never signed by an online key.
        sequence: rises by every statement of one online key; of an offline list, the
            highest that it has settled.
        base: version of the TUF role ``revocation`` that it stands on.
        offline: SHA-256 of that version's ``revocation/denied.json``.
        epochs: gate epochs withdrawn before their end.
        min_epoch: lowest gate epoch allowed.
        digests: of anything: source, arguments, policy, account commitment, reviewer key.
        flavors: ids of withdrawn flavors.
    """

    origin: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:/+-]{1,128}\Z")]
    time: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    epoch: _Count
    issuer: Literal["online", "offline"]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
    base: _Count
    offline: _Sha256
    epochs: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_EPOCHS)]
    min_epoch: _Count
    digests: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=MAX_DIGESTS)]
    flavors: Annotated[tuple[_Sha256, ...], msgspec.Meta(max_length=MAX_FLAVORS)]

    def covers(self, other: RevocationStatement) -> bool:
        """Whether everything that `other` withdraws is withdrawn here too."""
        return (
            set(self.epochs) >= set(other.epochs)
            and set(self.digests) >= set(other.digests)
            and set(self.flavors) >= set(other.flavors)
            and self.min_epoch >= other.min_epoch
        )


def render_revocation(statement: RevocationStatement) -> bytes:
    """Return the bytes to log and to sign; keep them, they are never made again.

    Raises:
        TrustError: STO-A071 when they would be refused, for example for their number.
    """
    data = msgspec.json.encode(statement)
    parse_revocation(data)
    return data


def parse_revocation(data: bytes) -> RevocationStatement:
    """Parse a statement's bytes (hostile); raises ``STO-A071``."""
    try:
        document = parse_strict_json(
            data, max_bytes=BOUNDS.statement_bytes, what="revocation statement"
        )
        return msgspec.convert(document, type=RevocationStatement)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError(
            "STO-A071", f"the revocation statement is malformed: {error}"
        ) from error


def revocation_digest(data: bytes) -> Digest:
    """Return SHA-256 of the PAE of a statement's bytes: its name in the log."""
    return Digest(hashlib.sha256(pae(RECORD_PAYLOAD, data)).hexdigest())


def join_revocations(envelope: bytes, proof: bytes) -> bytes:
    """Return the file that travels with workunits; `envelope` is one line of JSON."""
    return b"%b%b\n%b" % (_FIRST_LINE, envelope, proof)


def split_revocations(data: bytes) -> tuple[bytes, bytes]:
    """Return envelope and proof of a workunit's file (hostile), neither judged.

    Raises:
        TrustError: STO-A070 when it is missing or too large, STO-A071 in another form.
    """
    if not 0 < len(data) <= MAX_REVOCATIONS_BYTES:
        raise TrustError("STO-A070", "the revocations are missing or too large")
    if not data.startswith(_FIRST_LINE):
        raise TrustError("STO-A071", "the file of revocations is in another form")
    envelope, _, proof = data.removeprefix(_FIRST_LINE).partition(b"\n")
    return envelope, proof
