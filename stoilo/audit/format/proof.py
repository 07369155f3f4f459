"""Offline proofs that a leaf is in a log (c2sp.org/tlog-proof).

The checkpoint inside a proof gives size and root together, under the log's signature;
nothing else in the text is believed (`stoilo.audit.format.merkle` says why that matters).

    release.record.json   a release's record (`stoilo.audit.format.facts.ReleaseRecord`)
    release.tlog-proof    the proof of its leaf, which is the proof's ``extra``

A leaf's epoch is not in its record, so the leaf itself travels with the proof. It proves
nothing alone: it must name the record, and the checkpoint must hold it.
"""

from __future__ import annotations

import base64
import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stoilo.audit.format.facts import ReleaseRecord
from stoilo.audit.format.leaf import check_record, parse_leaf, render_leaf
from stoilo.audit.format.merkle import (
    HASH_BYTES,
    check_inclusion,
    decode_base64,
    leaf_hash,
    parse_size,
)
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint, open_checkpoint
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS

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
        TrustError: ``STO-L022``.
    """
    if len(data) > BOUNDS.proof_bytes:
        raise TrustError("STO-L022", f"a proof has at most {BOUNDS.proof_bytes} bytes")
    head, blank, checkpoint = data.partition(b"\n\n")
    if not blank or not head.isascii():
        raise TrustError("STO-L022", "the proof has no checkpoint or is not ASCII")
    lines = head.decode().split("\n")
    if lines.pop(0) != _FIRST_LINE:
        raise TrustError("STO-L022", f"a proof begins with {_FIRST_LINE}")
    extra = b""
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "), code="STO-L022")
    if not lines or not lines[0].startswith("index "):
        raise TrustError("STO-L022", "the proof has no index line")
    index = parse_size(lines.pop(0).removeprefix("index "), code="STO-L022")
    if len(lines) > _MAX_PATH:
        raise TrustError("STO-L022", "the proof has too many hashes")
    return Proof(index, tuple(_parse_hash(line) for line in lines), checkpoint, extra)


def _parse_hash(line: str) -> bytes:
    value = decode_base64(line, code="STO-L022")
    if len(value) != HASH_BYTES:
        raise TrustError("STO-L022", "a proof's hash has 32 bytes")
    return value


def check_proof(proof_text: bytes, leaf: bytes, policy: LogPolicy) -> ProvenLeaf:
    """Check that `leaf` (its bytes) lies in a log that `policy` trusts.

    `proof_text` is hostile; the caller computed `leaf`; `policy` is trusted.

    Raises:
        TrustError: ``STO-L022`` malformed, ``STO-L010``…``STO-L016`` checkpoint not
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


RELEASE_RECORD_FILE: Final = "release.record.json"
RELEASE_PROOF_FILE: Final = "release.tlog-proof"


@dataclass(frozen=True, slots=True)
class LoggedRelease:
    """A release as the log tells of it, and where."""

    record: ReleaseRecord
    proven: ProvenLeaf


def render_release_proof(proof: bytes, leaf: bytes) -> bytes:
    """Return the log's own `proof` with the bytes of its leaf; raises ``STO-L022``."""
    return render_proof(dataclasses.replace(parse_proof(proof), extra=leaf))


def check_release_proof(
    record: bytes, proof: bytes, policy: LogPolicy
) -> LoggedRelease:
    """Return what the log that `policy` trusts says of a release.

    Raises:
        TrustError: ``STO-K099`` when record, leaf and proof are not of one release or
            not in their one written form, else the log's codes.
    """
    parsed = parse_proof(proof)
    if render_proof(parsed) != proof:
        raise TrustError("STO-K099", "the release's log proof has another form")
    leaf = parse_leaf(parsed.extra)
    if render_leaf(leaf) != parsed.extra:
        raise TrustError("STO-K099", "the leaf of the release has another form")
    found = check_record(leaf, record)
    if not isinstance(found, ReleaseRecord):
        raise TrustError("STO-K099", f"the leaf is of a {found.kind}, not a release")
    return LoggedRelease(found, check_proof(proof, parsed.extra, policy))
