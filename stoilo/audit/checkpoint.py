"""Checkpoint bodies: origin, size and root of a log (c2sp.org/tlog-checkpoint v1.0.0).

Extension lines are refused: no monitor can audit them, ML-DSA cosignatures do not cover
them and witnesses reject them. Origins have at most 255 bytes, as in those cosignatures.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from stoilo.audit.keys import decode_base64
from stoilo.audit.merkle import EMPTY_ROOT, HASH_BYTES
from stoilo.core.errors import TrustError

__all__ = ["MAX_SIZE", "Checkpoint", "parse_checkpoint", "render_checkpoint"]

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


def parse_size(text: str, *, code: str = "STO-L014") -> int:
    """Parse a decimal without leading zeros, at most 2^63-1."""
    if not _SIZE.fullmatch(text) or int(text) > MAX_SIZE:
        raise TrustError(code, f"not a size or index: {text[:32]!r}")
    return int(text)


def parse_checkpoint(text: bytes) -> Checkpoint:
    """Parse a note's text (hostile until its signature was verified).

    Raises:
        TrustError: ``STO-L014``.
    """
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        raise TrustError("STO-L014", "the checkpoint is not UTF-8") from None
    if len(lines) != _FIELDS + 1 or lines[-1] or not lines[0]:
        raise TrustError("STO-L014", "a checkpoint has exactly three lines")
    origin, size_text, root_text = lines[:_FIELDS]
    size = parse_size(size_text)
    root = decode_base64(root_text, code="STO-L014")
    if len(origin.encode()) > MAX_ORIGIN_BYTES or len(root) != HASH_BYTES:
        raise TrustError("STO-L014", "the checkpoint's origin or root is malformed")
    if size == 0 and root != EMPTY_ROOT:
        raise TrustError("STO-L014", "an empty log must have the empty tree's root")
    return Checkpoint(origin, size, root)


def render_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the note text that the log key signs."""
    root = base64.b64encode(checkpoint.root).decode()
    return f"{checkpoint.origin}\n{checkpoint.size}\n{root}\n".encode()
