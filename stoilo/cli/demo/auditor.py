"""What an outside auditor does with a task: proof, leaf, checkpoint, signatures.

Reads only what the log publishes (static tiles) and the log policy of the release.
"""

from __future__ import annotations

import time
from pathlib import Path

from stoilo.audit.format.facts import LeafKind
from stoilo.audit.format.leaf import parse_leaf
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import ProvenLeaf, check_proof, parse_proof
from stoilo.audit.format.tiles import decode_bundle, render_tile_path, tile_at
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import load_trust, read_release

ENTRIES = -1
BUNDLE = 256


def read_trust(keys: Path) -> TrustedRelease:
    """Return the release in `keys`, verified from its root file."""
    root = (keys / "root.json").read_bytes()
    installed = installed_release()
    return load_trust(read_release(keys), root, int(time.time()), installed=installed)


def read_log_policy(keys: Path) -> LogPolicy:
    """Return the log policy of the release in `keys`, verified from its root file."""
    return read_trust(keys).log_policy


def read_leaf(log: Path, index: int, size: int) -> bytes:
    """Return leaf `index` from the entry bundles of a published tree of `size`."""
    bundle = tile_at(ENTRIES, index // BUNDLE, size)
    data = (log / render_tile_path(bundle)).read_bytes()
    return decode_bundle(data, bundle.width)[index % BUNDLE]


def audit_task(proof: bytes, log: Path, policy: LogPolicy) -> ProvenLeaf:
    """Check one admission's proof against the published log.

    Raises:
        TrustError: the proof, its checkpoint or its leaf does not hold.
    """
    claim = parse_proof(proof)
    size = int(claim.checkpoint.split(b"\n")[1])
    leaf = read_leaf(log, claim.index, size)
    if parse_leaf(leaf).kind is not LeafKind.ADMISSION:
        raise TrustError("STO-L020", "the task's leaf is not an admission")
    return check_proof(proof, leaf, policy)
