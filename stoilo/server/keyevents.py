"""Keys and policies in the log: each is one leaf, the first time it is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.leaf import Leaf, LeafKind, render_leaf
from stoilo.core.digests import Digest, content_digest

if TYPE_CHECKING:
    from stoilo.executor.trust import ReleaseFiles
    from stoilo.policies.policy import Policy
    from stoilo.server.ports import LabelledLog

__all__ = ["record_keys"]


def record_keys(
    log: LabelledLog, release: ReleaseFiles, policy: Policy, epoch: int, now: int
) -> int:
    """Log the root, every gate epoch and the policy that the log does not name yet.

    Returns:
        how many leaves were new; a restart adds none.
    """
    events = [
        (LeafKind.KEY, content_digest(data))
        for name, data in release.files
        if name.endswith(".root.json") or name.startswith("targets/gate/")
    ]
    events.append((LeafKind.POLICY, Digest(policy.digest)))
    leaves: dict[str, bytes] = {}
    for kind, digest in events:
        label = f"{kind.value}:{digest}"
        if not log.find_label(label):
            leaves[label] = render_leaf(Leaf(kind, digest, str(epoch), now))
    if leaves:
        log.append_many(list(leaves.values()), list(leaves))
    return len(leaves)
