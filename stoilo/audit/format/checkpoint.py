"""Checkpoint bodies: origin, size and root of a log (c2sp.org/tlog-checkpoint v1.0.0).

Extension lines are refused: no monitor can audit them, ML-DSA cosignatures do not cover
them and witnesses reject them. Origins have at most 255 bytes, as in those cosignatures.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stoilo.audit.format.keys import decode_base64
from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    replay_consistency,
    replay_inclusion,
)
from stoilo.core.errors import TrustError

MAX_SIZE = 2**63 - 1
MAX_ORIGIN_BYTES = 255
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log commits to.

    Attributes:
        origin: the log's name, equal to its key's name.
        size: number of leaves.
        root: RFC 6962 root over them, 32 bytes.
    """

    origin: str
    size: int
    root: bytes


def parse_size(text: str, *, code: str = "STO-L010") -> int:
    """Parse a decimal without leading zeros, at most 2^63-1."""
    if not _SIZE.fullmatch(text) or int(text) > MAX_SIZE:
        raise TrustError(code, f"not a size or index: {text[:32]!r}")
    return int(text)


def parse_checkpoint(text: bytes) -> Checkpoint:
    """Parse a note's text (hostile until its signature was verified).

    Raises:
        TrustError: ``STO-L010``.
    """
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise TrustError("STO-L010", "the checkpoint is not UTF-8") from None
    if len(lines) != _FIELDS + 1 or lines[-1] or not lines[0]:
        raise TrustError("STO-L010", "a checkpoint has exactly three lines")
    origin, size_text, root_text = lines[:_FIELDS]
    size = parse_size(size_text)
    root = decode_base64(root_text, code="STO-L010")
    if len(origin.encode()) > MAX_ORIGIN_BYTES or len(root) != HASH_BYTES:
        raise TrustError("STO-L010", "the checkpoint's origin or root is malformed")
    # Else a log could later claim to have begun from whatever that root stands for.
    if size == 0 and root != EMPTY_ROOT:
        raise TrustError("STO-L010", "an empty log must have the empty tree's root")
    return Checkpoint(origin, size, root)


def render_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the note text that the log key signs."""
    root = base64.b64encode(checkpoint.root).decode()
    return f"{checkpoint.origin}\n{checkpoint.size}\n{root}\n".encode()


def check_inclusion(
    leaf: bytes, index: int, path: Sequence[bytes], checkpoint: Checkpoint
) -> None:
    """Check that leaf hash `leaf` lies at `index` under `checkpoint`.

    `index` and `path` are hostile; `checkpoint` was verified by the caller.

    Raises:
        TrustError: ``STO-L020`` when the proof does not hold.
    """
    if replay_inclusion(leaf, index, checkpoint.size, path) != checkpoint.root:
        raise TrustError(
            "STO-L020", "the inclusion proof does not lead to the checkpoint's root"
        )


def check_consistency(old: Checkpoint, new: Checkpoint, path: Sequence[bytes]) -> None:
    """Check that the tree of `new` begins with that of `old` (RFC 9162 2.1.4.2).

    `path` is hostile; both checkpoints were verified by the caller.

    Raises:
        TrustError: ``STO-L021`` when the trees are not shown to be consistent, or are
            of two logs.
    """
    if old.origin != new.origin:
        raise TrustError("STO-L021", "the two checkpoints are of different logs")
    if not 0 <= old.size <= new.size:
        raise TrustError("STO-L021", f"the log shrank from {old.size} to {new.size}")
    # For these there is no proof to send: nothing came before, or nothing was added.
    if old.size in {0, new.size}:
        expected = new.root if old.size == new.size else EMPTY_ROOT
        if path or old.root != expected:
            raise TrustError("STO-L021", "the two trees are not consistent")
        return
    if replay_consistency(old.size, new.size, old.root, path) != (old.root, new.root):
        raise TrustError("STO-L021", "the two trees are not consistent")
