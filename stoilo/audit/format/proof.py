"""A leaf's few lines, and the offline proof that it lies in a log (c2sp.org/tlog-proof).

    stoilo-entry/v1 LF kind LF sha256 LF epoch LF time LF

For an admission, the digest is SHA-256 of the statement's DSSE PAE and the time is
``admitted_at``, so that a verifier can compute the leaf from the statement alone. Every
other leaf names one record (`stoilo.audit.format.records`). A batch of refusals adds two
lines, the count and the Merkle root over the refused submissions' commitments: how many
were refused is public, what they were is not.

The checkpoint inside a proof gives size and root together, under the log's signature;
nothing else in the text is believed (`stoilo.audit.format.merkle` says why that matters).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from stoilo.audit.format.merkle import (
    HASH_BYTES,
    check_inclusion,
    decode_base64,
    leaf_hash,
    parse_size,
)
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint, open_checkpoint
from stoilo.core.digests import Digest, check_digest
from stoilo.core.errors import TrustError
from stoilo.core.types import BOUNDS

MAX_LEAF_BYTES = 65_535
LEAF_FORMAT = "stoilo-entry/v1"
_EPOCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINES = 5


class LeafKind(StrEnum):
    """What happened."""

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
    """One event in the log."""

    kind: LeafKind  # what happened
    # SHA-256 of what it happened to; salted wherever it could be guessed
    digest: Digest
    epoch: str  # the gate epoch it happened in
    time: int  # POSIX seconds
    count: int | None = None  # refusals only, how many
    # refusals only, Merkle root over the refused digests, hex
    root: Digest | None = None


def render_leaf(leaf: Leaf) -> bytes:
    """Return the leaf's bytes; raises ``STO-L010`` for unwritable fields."""
    if not _EPOCH.fullmatch(leaf.epoch) or leaf.time < 0:
        raise TrustError("STO-L010", "a leaf's epoch or time is malformed")
    if (leaf.kind is LeafKind.REFUSALS) != (leaf.count is not None):
        raise TrustError("STO-L010", "refusals carry a count, and nothing else does")
    digest = check_digest(leaf.digest)
    text = f"{LEAF_FORMAT}\n{leaf.kind}\n{digest}\n{leaf.epoch}\n{leaf.time}\n"
    if leaf.count is not None:
        text += f"{leaf.count}\n{check_digest(leaf.root or '')}\n"
    return text.encode()


def parse_leaf(data: bytes) -> Leaf:
    """Parse a leaf of any log; raises ``STO-L010``."""
    if len(data) > MAX_LEAF_BYTES or not data.isascii():
        raise TrustError("STO-L010", "the leaf is too long or not ASCII")
    lines = data.decode().split("\n")
    if len(lines) < _LINES + 1 or lines[0] != LEAF_FORMAT or lines.pop():
        raise TrustError("STO-L010", "not a leaf of this log format")
    if lines[1] not in _KINDS:
        raise TrustError("STO-L010", f"unknown kind of leaf: {lines[1][:32]!r}")
    kind, rest = LeafKind(lines[1]), lines[_LINES:]
    expected = 2 if kind is LeafKind.REFUSALS else 0
    if len(rest) != expected or not _EPOCH.fullmatch(lines[3]):
        raise TrustError("STO-L010", f"a leaf of kind {kind} is malformed")
    time = parse_size(lines[4], code="STO-L010")
    leaf = Leaf(kind, check_digest(lines[2]), lines[3], time)
    if not rest:
        return leaf
    count, batch_root = parse_size(rest[0], code="STO-L010"), check_digest(rest[1])
    return Leaf(leaf.kind, leaf.digest, leaf.epoch, leaf.time, count, batch_root)


_FIRST_LINE = "c2sp.org/tlog-proof@v1"
_MAX_PATH = 63


@dataclass(frozen=True, slots=True)
class Proof:
    """A parsed proof, nothing verified."""

    index: int  # claimed place of the leaf, from 0
    path: tuple[bytes, ...]  # inclusion proof, leaf's sibling first
    checkpoint: bytes  # the signed note, verbatim
    extra: bytes = b""  # opaque, authenticated by nothing


@dataclass(frozen=True, slots=True)
class ProvenLeaf:
    """Where a leaf was proven to lie."""

    index: int  # place in the log, from 0
    size: int  # leaves under the checkpoint
    root: bytes  # the checkpoint's root
    # newest verified cosignature time (POSIX seconds): a lower bound for now; None when
    # no witness of the policy cosigned
    checkpoint_time: int | None
    # the newest that a whole quorum has reached: what may be remembered
    agreed_time: int | None = None


def render_proof(proof: Proof) -> bytes:
    """Return the proof's text, as kept in ``.tlog-proof`` files."""
    lines = [_FIRST_LINE]
    if proof.extra:
        lines.append(f"extra {base64.b64encode(proof.extra).decode()}")
    lines.append(f"index {proof.index}")
    lines += [base64.b64encode(step).decode() for step in proof.path]
    return "".join(f"{line}\n" for line in lines).encode() + b"\n" + proof.checkpoint


def parse_proof(data: bytes) -> Proof:
    """Parse hostile bytes.

    Raises:
        TrustError: ``STO-L010``.
    """
    if len(data) > BOUNDS.proof_bytes:
        raise TrustError("STO-L010", f"a proof has at most {BOUNDS.proof_bytes} bytes")
    head, blank, checkpoint = data.partition(b"\n\n")
    if not blank or not head.isascii():
        raise TrustError("STO-L010", "the proof has no checkpoint or is not ASCII")
    lines = head.decode().split("\n")
    if lines.pop(0) != _FIRST_LINE:
        raise TrustError("STO-L010", f"a proof begins with {_FIRST_LINE}")
    extra = b""
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "), code="STO-L010")
    if not lines or not lines[0].startswith("index "):
        raise TrustError("STO-L010", "the proof has no index line")
    index = parse_size(lines.pop(0).removeprefix("index "), code="STO-L010")
    if len(lines) > _MAX_PATH:
        raise TrustError("STO-L010", "the proof has too many hashes")
    return Proof(index, tuple(_parse_hash(line) for line in lines), checkpoint, extra)


def _parse_hash(line: str) -> bytes:
    value = decode_base64(line, code="STO-L010")
    if len(value) != HASH_BYTES:
        raise TrustError("STO-L010", "a proof's hash has 32 bytes")
    return value


def check_proof(proof_text: bytes, leaf: bytes, policy: LogPolicy) -> ProvenLeaf:
    """Check that `leaf` (its bytes) lies in a log that `policy` trusts.

    `proof_text` is hostile; the caller computed `leaf`; `policy` is trusted.

    Raises:
        TrustError: ``STO-L010``…``STO-L016`` malformed, or checkpoint not
            trusted, ``STO-L020`` leaf not included.
    """
    proof = parse_proof(proof_text)
    signed = _open(proof.checkpoint, policy)
    checkpoint = signed.checkpoint
    check_inclusion(leaf_hash(leaf), proof.index, proof.path, checkpoint)
    return ProvenLeaf(
        proof.index, checkpoint.size, checkpoint.root, signed.time, signed.agreed
    )


# The results of a workunit carry proofs under one checkpoint; its signatures cost most of a
# check.
@lru_cache(maxsize=4)
def _open(note: bytes, policy: LogPolicy) -> SignedCheckpoint:
    """Return `open_checkpoint`'s answer, given once for proofs of one checkpoint.

    It depends on the bytes and on the policy alone; refusals are not kept.
    """
    return open_checkpoint(note, policy)
