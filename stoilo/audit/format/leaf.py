"""Leaves: one short text per event; digests only, never names, hosts or source.

    stoilo-entry/v1 LF kind LF sha256 LF epoch LF time LF

For an admission, the digest is SHA-256 of the statement's DSSE PAE and the time is
``admitted_at``, so that a verifier can compute the leaf from the statement alone.
Every other leaf names a small public record (`stoilo.audit.format.record`) by its digest.
A batch of refusals adds two lines, the count and the Merkle root over the refused
submissions' commitments: how many were refused is public, what they were is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stoilo.audit.format.checkpoint import parse_size
from stoilo.audit.format.merkle import leaf_hash, root
from stoilo.core.digests import Digest, check_digest
from stoilo.core.errors import TrustError

MAX_LEAF_BYTES = 65_535
LEAF_FORMAT = "stoilo-entry/v1"
_EPOCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINES = 5


class LeafKind(StrEnum):
    """What happened; in logs of early versions RELEASE was a level's or flavor's too."""

    ADMISSION = "admission"
    WORKUNIT = "workunit"
    REFUSALS = "refusals"
    RESULT = "result"
    REVIEW = "review"
    KEY = "key"
    POLICY = "policy"
    LEVEL = "level"
    FLAVOR = "flavor"
    RELEASE = "release"
    REVOCATION = "revocation"
    RETENTION = "retention"
    OPERATOR = "operator"


_KINDS = frozenset(LeafKind)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One event in the log.

    Attributes:
        kind: what happened.
        digest: SHA-256 of what it happened to; salted wherever it could be guessed.
        epoch: the gate epoch it happened in.
        time: POSIX seconds.
        count: refusals only, how many.
        root: refusals only, Merkle root over the refused digests, hex.
    """

    kind: LeafKind
    digest: Digest
    epoch: str
    time: int
    count: int | None = None
    root: Digest | None = None


def render_leaf(leaf: Leaf) -> bytes:
    """Return the leaf's bytes; raises ``STO-L024`` for unwritable fields."""
    if not _EPOCH.fullmatch(leaf.epoch) or leaf.time < 0:
        raise TrustError("STO-L024", "a leaf's epoch or time is malformed")
    if (leaf.kind is LeafKind.REFUSALS) != (leaf.count is not None):
        raise TrustError("STO-L024", "refusals carry a count, and nothing else does")
    digest = check_digest(leaf.digest)
    text = f"{LEAF_FORMAT}\n{leaf.kind}\n{digest}\n{leaf.epoch}\n{leaf.time}\n"
    if leaf.count is not None:
        text += f"{leaf.count}\n{check_digest(leaf.root or '')}\n"
    return text.encode()


def parse_leaf(data: bytes) -> Leaf:
    """Parse a leaf of any log; raises ``STO-L024``."""
    if len(data) > MAX_LEAF_BYTES or not data.isascii():
        raise TrustError("STO-L024", "the leaf is too long or not ASCII")
    lines = data.decode().split("\n")
    if len(lines) < _LINES + 1 or lines[0] != LEAF_FORMAT or lines.pop():
        raise TrustError("STO-L024", "not a leaf of this log format")
    if lines[1] not in _KINDS:
        raise TrustError("STO-L024", f"unknown kind of leaf: {lines[1][:32]!r}")
    kind, rest = LeafKind(lines[1]), lines[_LINES:]
    expected = 2 if kind is LeafKind.REFUSALS else 0
    if len(rest) != expected or not _EPOCH.fullmatch(lines[3]):
        raise TrustError("STO-L024", f"a leaf of kind {kind} is malformed")
    time = parse_size(lines[4], code="STO-L024")
    leaf = Leaf(kind, check_digest(lines[2]), lines[3], time)
    if not rest:
        return leaf
    count, batch_root = parse_size(rest[0], code="STO-L024"), check_digest(rest[1])
    return Leaf(leaf.kind, leaf.digest, leaf.epoch, leaf.time, count, batch_root)


@dataclass(frozen=True, slots=True)
class RefusalBatch:
    """Refusals of one researcher in one interval.

    Attributes:
        commitment: salted commitment of the researcher.
        start: POSIX seconds, inclusive.
        end: POSIX seconds, exclusive.
        count: how many submissions were refused.
        root: Merkle root (RFC 6962) over the refused submissions' commitments, hex.
    """

    commitment: Digest
    start: int
    end: int
    count: int
    root: Digest


def batch_refusals(
    commitment: Digest, start: int, end: int, refused: Sequence[Digest]
) -> RefusalBatch:
    """Return the batch over `refused` digests, in the order of refusal."""
    hashes = [leaf_hash(bytes.fromhex(check_digest(one))) for one in refused]
    batch_root = Digest(root(hashes).hex())
    return RefusalBatch(commitment, start, end, len(hashes), batch_root)
