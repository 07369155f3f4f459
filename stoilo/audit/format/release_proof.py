"""The log's proof of a release, as it lies beside the release's files. Pure.

    release.record.json   the record (`stoilo.audit.format.facts.ReleaseRecord`), its very bytes
    release.tlog-proof    the inclusion proof of the record's leaf, which is its ``extra``

A leaf's epoch is not in its record, so the leaf itself travels with the proof. It proves
nothing alone: it must name the record, and the checkpoint must hold it.

Trust: both files are hostile; the log policy is the reader's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from stoilo.audit.format.facts import ReleaseRecord
from stoilo.audit.format.leaf import parse_leaf, render_leaf
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import ProvenLeaf, check_proof, parse_proof, render_proof
from stoilo.audit.format.record import check_record
from stoilo.core.errors import TrustError

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
