"""Proofs about subtrees [start, end) of a log's tree. Pure.

A subtree is valid when `start` is a multiple of the least power of two that is not below
its width; every inner node of a tree is one, and so is the tree's ragged right edge.
Source: draft-ietf-plants-merkle-tree-certs (subtrees), which ML-DSA cosignatures of
c2sp.org/tlog-cosignature can sign. For start 0 these are RFC 6962's consistency proofs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.merkle import (
    NodeReader,
    inclusion_proof,
    node_hash,
    range_root,
    replay_inclusion,
)
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stoilo.audit.checkpoint import Checkpoint

__all__ = [
    "check_subtree",
    "check_subtree_inclusion",
    "is_subtree",
    "subtree_inclusion_proof",
    "subtree_proof",
    "subtree_root",
]


def is_subtree(start: int, end: int) -> bool:
    """Whether [start, end) can be a subtree."""
    return 0 <= start <= end and start % _bit_ceil(end - start) == 0


def subtree_root(start: int, end: int, node: NodeReader) -> bytes:
    """Return the root of a subtree; raises ``STO-L023`` when it is none."""
    _check_shape(start, end, end)
    return range_root(0, end - start, _shifted(node, start))


def subtree_inclusion_proof(
    index: int, start: int, end: int, node: NodeReader
) -> list[bytes]:
    """Return the path from leaf `index` (of the log) up to the subtree's root.

    Raises:
        TrustError: ``STO-L023``.
    """
    _check_shape(start, end, end)
    return inclusion_proof(index - start, end - start, _shifted(node, start))


def subtree_proof(start: int, end: int, size: int, node: NodeReader) -> list[bytes]:
    """Return the proof that a subtree is part of the tree of `size` leaves.

    Raises:
        TrustError: ``STO-L023`` when it is no subtree of that tree.
    """
    _check_shape(start, end, size)
    low, high, whole = 0, size, True
    path: list[bytes] = []
    while start != end and (start, end) != (low, high):
        middle = low + _bit_ceil(high - low) // 2
        if end <= middle:
            path.append(range_root(middle, high, node))
            high = middle
            continue
        path.append(range_root(low, middle, node))
        if start < middle:
            start, whole = middle, False
        low = middle
    if not whole:
        path.append(range_root(start, end, node))
    return path[::-1]


def check_subtree_inclusion(
    leaf: bytes, index: int, subtree: tuple[int, int, bytes], path: Sequence[bytes]
) -> None:
    """Check that leaf hash `leaf` lies at `index` in a subtree (start, end, root).

    The subtree was verified by the caller; `index` and `path` are hostile.

    Raises:
        TrustError: ``STO-L020``.
    """
    start, end, root = subtree
    if replay_inclusion(leaf, index - start, end - start, path) != root:
        raise TrustError("STO-L020", "the proof does not lead to the subtree's root")


def check_subtree(
    subtree: tuple[int, int, bytes], checkpoint: Checkpoint, path: Sequence[bytes]
) -> None:
    """Check that a claimed subtree (start, end, root) is part of a checkpoint's tree.

    Args:
        subtree: hostile.
        checkpoint: verified by the caller.
        path: hostile.

    Raises:
        TrustError: ``STO-L021``.
    """
    start, end, root = subtree
    if not is_subtree(start, end) or end > checkpoint.size or start == end:
        raise TrustError("STO-L021", f"[{start}, {end}) is no subtree of this log")
    steps = iter(reversed(path))
    seen = _fold(start, end, (0, checkpoint.size), root, steps)
    if seen != (root, checkpoint.root) or next(steps, None) is not None:
        raise TrustError("STO-L021", "the subtree is not shown to be part of the tree")


def _fold(
    start: int,
    end: int,
    around: tuple[int, int],
    known: bytes | None,
    steps: Iterator[bytes],
) -> tuple[bytes, bytes]:
    """Return the roots of [start, end) and of the range around it, as the path has them.

    `known` is the subtree's root while nothing of it was split off.
    """
    low, high = around
    if (start, end) == (low, high):
        root = known if known is not None else _next(steps)
        return root, root
    middle = low + _bit_ceil(high - low) // 2
    step = _next(steps)
    if end <= middle:
        inner, outer = _fold(start, end, (low, middle), known, steps)
        return inner, node_hash(outer, step)
    if start >= middle:
        inner, outer = _fold(start, end, (middle, high), known, steps)
        return inner, node_hash(step, outer)
    inner, outer = _fold(middle, end, (middle, high), None, steps)
    return node_hash(step, inner), node_hash(step, outer)


def _next(steps: Iterator[bytes]) -> bytes:
    step = next(steps, None)
    if step is None:
        raise TrustError("STO-L021", "the proof of the subtree is too short")
    return step


def _check_shape(start: int, end: int, size: int) -> None:
    if not is_subtree(start, end) or end > size:
        raise TrustError("STO-L023", f"[{start}, {end}) is no subtree of {size} leaves")


def _shifted(node: NodeReader, start: int) -> NodeReader:
    return lambda level, index: node(level, index + (start >> level))


def _bit_ceil(number: int) -> int:
    """Return the least power of two that is not below `number` (1 for 0)."""
    return 1 << max(number - 1, 0).bit_length()
