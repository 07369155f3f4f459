"""The check before a log goes on: leaves, head, tiles and checkpoint must agree.

It is the check of `stoilo.audit.log.fsck`, of all that appending rests on. What a crash
between two steps can leave goes on (the log database ahead of the head, tiles ahead of
the checkpoint); anything else refuses to start and says which part lies. Nothing is ever
repaired by signing a smaller or another tree.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stoilo.audit.format.merkle import EMPTY_ROOT, Checkpoint, Frontier
from stoilo.audit.format.policy import NO_QUORUM, LogPolicy, open_checkpoint
from stoilo.audit.format.tiles import TileBuilder
from stoilo.audit.log.fsck import LogContents, compare_parts
from stoilo.audit.log.fsck_parts import LogParts, refuse_faults
from stoilo.audit.log.store import DiskStore, TreeHead
from stoilo.core.errors import TrustError

EMPTY_HEAD = TreeHead(0, EMPTY_ROOT)


@dataclass(frozen=True, slots=True)
class Opening:
    """A log found sound."""

    frontier: Frontier  # of all committed leaves
    head: TreeHead  # of the head database; at most as large as the frontier
    published: Checkpoint | None  # the published checkpoint, None before the first
    note: bytes  # its signed note
    builder: TileBuilder  # tile builder that stands at the published size
    # whether readers under today's policy accept the note; if not, it is older than its
    # witnesses and is published again with their cosignatures
    is_witnessed: bool = True


def open_store(store: DiskStore, origin: str, policy: LogPolicy | None) -> Opening:
    """Check a log, creating it where there is provably none yet.

    Raises:
        TrustError: ``STO-L032``…``STO-L049``, naming the part that disagrees.
    """
    # Witnesses are not counted: a checkpoint may be older than the policy that names them.
    alone = policy and dataclasses.replace(policy, quorum=NO_QUORUM)
    parts = LogParts(store.paths.log, store.paths)
    found = compare_parts(parts, alone, every=False)
    refuse_faults(parts.findings)
    log, head = found.states.log, found.states.head
    published = found.anchor.checkpoint if found.anchor else None
    for part in (log, head, published):
        if part is not None and part.origin != origin:
            text = f"the log here belongs to {part.origin!r}, not to {origin!r}"
            raise TrustError("STO-L048", text)
    if log is None:
        store.create_log(origin)
    if head is None:
        store.create_head(origin, EMPTY_HEAD)
    return Opening(
        log.frontier if log else Frontier(),
        head.head if head else EMPTY_HEAD,
        published,
        found.note or b"",
        _builder(store, found, published.size if published else 0),
        not found.note or policy is None or _is_accepted(found.note, policy),
    )


def _builder(store: DiskStore, found: LogContents, size: int) -> TileBuilder:
    """Return the builder as it stood when the tree of `size` leaves was published."""
    builder = TileBuilder(found.tree.published)
    if size > builder.size:
        builder.extend(store.leaves(builder.size, size))
    return builder


def _is_accepted(note: bytes, policy: LogPolicy) -> bool:
    try:
        open_checkpoint(note, policy.current)
    except TrustError:
        return False
    return True
