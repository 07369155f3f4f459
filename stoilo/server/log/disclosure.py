"""What the public learns of a workunit and of an outcome: digests and commitments. Pure.

Everything that could be guessed is salted: what belongs to an attempt by its statement's
nonce, a result by its payload's. Volunteers and the researcher hold what opens them;
where the server's copies are deleted, nobody else can.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.record import (
    OutcomeRecord,
    WorkunitRecord,
    salted_commitment,
    task_commitment,
)
from stoilo.core.digests import Digest, Domain, content_digest, domain_digest
from stoilo.core.limits import RunLimits
from stoilo.core.types import Redundancy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stoilo.server.db.records import AttemptRow

__all__ = [
    "ResultPayload",
    "Sealed",
    "outcome_record",
    "read_sealed",
    "review_commitment",
    "submitter_commitment",
    "workunit_record",
]

_COSIGNATURE_BYTES = {4 + 8 + 64, 4 + 8 + 2420}  # Ed25519, ML-DSA-44


class ResultPayload(msgspec.Struct, frozen=True):
    """What a result's record is made of; private, because it holds the salt.

    Attributes:
        task_id: the task.
        attempt: the one that decided.
        state: the task's final state.
        code: why it did not succeed.
        result_sha256: of the canonical result.
        finished_at: s.
        nonce: the salt, 64 hex digits.
        agreeing: copies that agreed.
    """

    task_id: str
    attempt: int
    state: str
    code: str
    result_sha256: str
    finished_at: int
    nonce: str
    agreeing: int = 0


class Sealed(msgspec.Struct, frozen=True):
    """What the public record of a workunit takes from its statement.

    As `stoilo.core.statement.Statement` has it; read without checks, for the bytes are
    this server's own and many.
    """

    origin: str
    nonce: str
    seed: str
    task_module: str
    validator_module: str
    arguments: str
    blobs: tuple[str, ...]
    flavor: str
    level: str
    level_digest: str
    policy_digest: str
    language_digest: str
    limits: RunLimits
    redundancy: Redundancy
    submitter: str
    admitted_at: int
    not_after: int
    epoch: int
    reviewers: tuple[str, ...] = ()
    public_source: bool = False


class _Statement(msgspec.Struct):
    predicate: Sealed


def read_sealed(statement: bytes) -> Sealed:
    """Return what counts of a statement that this server rendered itself."""
    return msgspec.json.decode(statement, type=_Statement).predicate


def submitter_commitment(salt: str) -> Digest:
    """Return the public, salted name of an account."""
    return domain_digest(Domain.COMMITMENT, b"submitter", bytes.fromhex(salt))


def review_commitment(salt: str, envelope: bytes) -> str:
    """Return the public name of a review; `salt` is its reviewer's account's."""
    return salted_commitment(salt, "review", content_digest(envelope))


def workunit_record(
    attempt: AttemptRow,
    codes: tuple[str, ...],
    time: int,
    *,
    issued: bool,
    reviews: Mapping[str, str],
) -> WorkunitRecord:
    """Return the public explanation of an attempt's admission, which has its place.

    Args:
        attempt: sealed and logged.
        codes: of the gate's findings.
        time: when the workunit was made, or the admission withdrawn, s.
        issued: which of the two.
        reviews: digest of each review in the statement → its commitment.
    """
    sealed = read_sealed(attempt.statement or b"")
    size, cosigned_at = _covering(attempt.proof or b"")
    state: Literal["issued", "withdrawn"] = "issued" if issued else "withdrawn"

    def salted(what: str, *values: str) -> str:
        return salted_commitment(sealed.nonce, what, *values)

    return WorkunitRecord(
        origin=sealed.origin,
        time=time,
        state=state,
        admission=attempt.log_index or 0,
        admission_leaf=leaf_hash(attempt.leaf or b"").hex(),
        task=task_commitment(attempt.task_id),
        attempt=attempt.number,
        submitter=sealed.submitter,
        public_source=sealed.public_source,
        source=sealed.task_module
        if sealed.public_source
        else salted("source", sealed.task_module),
        validator=salted("validator", sealed.validator_module),
        arguments=salted("arguments", sealed.arguments),
        blobs=salted("blobs", *sealed.blobs),
        level=sealed.level,
        level_digest=sealed.level_digest,
        policy_digest=sealed.policy_digest,
        language_digest=sealed.language_digest,
        flavor=sealed.flavor,
        limits=sealed.limits,
        redundancy=sealed.redundancy,
        epoch=sealed.epoch,
        admitted_at=sealed.admitted_at,
        not_after=sealed.not_after,
        checkpoint=size,
        checkpoint_time=cosigned_at,
        codes=codes,
        reviews=tuple(
            reviews[digest]
            for text in sealed.reviewers
            if (digest := content_digest(text.encode())) in reviews
        ),
    )


def outcome_record(
    payload: ResultPayload, admission: int | None, origin: str
) -> OutcomeRecord:
    """Return the public record of a task's outcome; its result is salted."""
    return OutcomeRecord(
        origin=origin,
        time=payload.finished_at,
        task=task_commitment(payload.task_id),
        attempt=payload.attempt,
        admission=-1 if admission is None else admission,
        state=payload.state,
        code=payload.code,
        result=salted_commitment(payload.nonce, "result", payload.result_sha256),
        agreeing=payload.agreeing,
    )


def _covering(proof: bytes) -> tuple[int, int]:
    """Return size and newest cosignature time of a proof's checkpoint; 0 for neither.

    The log's own proof: what does not look like one says nothing.
    """
    return _read_note(proof.partition(b"\n\n")[2])


@lru_cache(maxsize=8)
def _read_note(note: bytes) -> tuple[int, int]:
    """Return the same of a checkpoint, which many proofs share."""
    body, _, signatures = note.partition(b"\n\n")
    lines = body.split(b"\n")
    size = int(lines[1]) if len(lines) > 1 and lines[1].isdigit() else 0
    return size, max(map(_cosigned_at, signatures.split(b"\n")), default=0)


def _cosigned_at(line: bytes) -> int:
    try:
        data = base64.b64decode(line.rpartition(b" ")[2], validate=True)
    except binascii.Error:
        return 0
    if len(data) not in _COSIGNATURE_BYTES:
        return 0
    return int.from_bytes(data[4:12], "big")
