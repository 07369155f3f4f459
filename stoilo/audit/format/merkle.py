"""The Merkle tree of RFC 6962 (hashing) and RFC 9162 (verification), and checkpoints. Pure.

A leaf hashes as SHA-256(00 ‖ data), a node as SHA-256(01 ‖ left ‖ right), and a tree of
n leaves splits at the largest power of two below n. Trees are read through a
`NodeReader`, so the same code proves from memory, from tiles on a disk or over HTTP.

The size+1 trap: a proof does not bind the size of its tree. With a tree's true root,
most proofs also pass for size+1 (RFC 9162 2.1.3.2 uses the size only to choose sides).
So size and root must come together out of one `Checkpoint`, never out of the proof or
the message around it: `check_inclusion` and `check_consistency` take one, and
`stoilo.audit.format.proof.check_proof` takes it out of a signed note. The `replay_…`
functions take the two apart; nothing but those two doors may call them
(``tests/invariants/test_sizes_and_roots.py``).

Checkpoint bodies: c2sp.org/tlog-checkpoint v1.0.0. Extension lines are refused: no monitor
can audit them, ML-DSA cosignatures do not cover them and witnesses reject them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from stoilo.core.errors import TrustError

HASH_BYTES = 32
_AT_ONCE = 4096  # hashes that are joined in one go: of a large log not all at once
EMPTY_ROOT = hashlib.sha256(b"").digest()

NodeReader = Callable[[int, int], bytes]
"""(level, index) → root of the perfect subtree over leaves index·2^level …"""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of one leaf's bytes (RFC 6962 2.1)."""
    # Leaves and nodes begin with other bytes, so that a node never passes for a leaf.
    return hashlib.sha256(b"\0" + data).digest()


def leaf_hashes(leaves: Iterable[bytes]) -> list[bytes]:
    """Return the hashes of many leaves; the work of `leaf_hash` without a call for each."""
    sha256 = hashlib.sha256
    return [sha256(b"\0" + leaf).digest() for leaf in leaves]


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (RFC 6962 2.1)."""
    return hashlib.sha256(b"\1" + left + right).digest()


def perfect_roots(hashes: Sequence[bytes]) -> list[bytes]:
    """Return the roots of the perfect subtrees that make up `hashes`, left to right."""
    found: list[bytes] = []
    start = 0
    for bit in reversed(range(len(hashes).bit_length())):
        if len(hashes) >> bit & 1:
            found.append(_fold(hashes[start : start + (1 << bit)]))
            start += 1 << bit
    return found


def _fold(hashes: Sequence[bytes]) -> bytes:
    """Return the root over a power of two of hashes."""
    while len(hashes) > 1:
        hashes = _join_pairs(hashes)
    return hashes[0]


def _join_pairs(hashes: Sequence[bytes]) -> list[bytes]:
    """Return the nodes above an even number of hashes."""
    sha256 = hashlib.sha256
    pairs = zip(hashes[::2], hashes[1::2], strict=True)
    return [sha256(b"\1" + left + right).digest() for left, right in pairs]


def join_roots(roots: Sequence[bytes]) -> bytes:
    """Return the tree's root from its perfect subtrees, left to right."""
    if not roots:
        return EMPTY_ROOT
    result = roots[-1]
    for left in reversed(roots[:-1]):
        result = node_hash(left, result)
    return result


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the root of the tree over `leaf_hashes` (hashes, not leaf bytes)."""
    return join_roots(perfect_roots(leaf_hashes))


@dataclass(frozen=True, slots=True)
class Frontier:
    """The right edge of a tree: all that appending and the root need."""

    size: int = 0  # number of leaves
    # roots of the perfect subtrees, left to right, one for each bit of size
    hashes: tuple[bytes, ...] = ()

    def extend(self, leaf_hashes: Iterable[bytes]) -> Frontier:
        """Return the frontier after appending `leaf_hashes`."""
        hashes = iter(leaf_hashes)
        frontier = self
        while part := list(islice(hashes, _AT_ONCE)):
            frontier = frontier._join(part)
        return frontier

    def _join(self, level: list[bytes]) -> Frontier:
        """Return the frontier after appending `level`, which is used up."""
        edge, roots = list(self.hashes), list[bytes]()
        size, left = self.size + len(level), self.size
        while level or edge:  # one round a height, from the leaves up
            if left & 1:
                level.insert(0, edge.pop())
            if len(level) & 1:
                roots.append(level.pop())
            level = _join_pairs(level)
            left >>= 1
        return Frontier(size, tuple(reversed(roots)))

    def root(self) -> bytes:
        """Return the tree's root."""
        return join_roots(self.hashes)


def range_root(start: int, end: int, node: NodeReader) -> bytes:
    """Return the root over leaves [start, end), a range that some split made."""
    if start == end:
        return EMPTY_ROOT
    width = end - start
    if width & (width - 1) == 0:
        level = width.bit_length() - 1
        return node(level, start >> level)
    split = _split(width)
    left = range_root(start, start + split, node)
    return node_hash(left, range_root(start + split, end, node))


def _split(width: int) -> int:
    """Return the largest power of two below `width` (width ≥ 2)."""
    return 1 << ((width - 1).bit_length() - 1)


def inclusion_proof(index: int, size: int, node: NodeReader) -> list[bytes]:
    """Return the hashes from the leaf's sibling up (RFC 6962 2.1.1).

    Raises:
        TrustError: ``STO-L023`` when the tree has no such leaf.
    """
    if not 0 <= index < size:
        raise TrustError("STO-L023", f"a tree of {size} leaves has no leaf {index}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(range_root(middle, end, node))
            end = middle
        else:
            path.append(range_root(start, middle, node))
            start = middle
    return path[::-1]


def consistency_proof(old: int, new: int, node: NodeReader) -> list[bytes]:
    """Return the proof that `new` leaves extend `old` ones (RFC 6962 2.1.2).

    Raises:
        TrustError: ``STO-L023`` unless 0 ≤ old ≤ new.
    """
    if not 0 <= old <= new:
        raise TrustError("STO-L023", f"a tree cannot shrink from {old} to {new} leaves")
    if old in {0, new}:
        return []
    path: list[bytes] = []
    start, end, whole = 0, new, True
    while old != end:
        middle = start + _split(end - start)
        if old <= middle:
            path.append(range_root(middle, end, node))
            end = middle
        else:
            path.append(range_root(start, middle, node))
            start, whole = middle, False
    # The old root itself is known to whoever checks; a part of the old tree is not.
    if not whole:
        path.append(range_root(start, end, node))
    return path[::-1]


def replay_inclusion(
    leaf: bytes, index: int, size: int, path: Sequence[bytes]
) -> bytes:
    """Return the root to which `path` leads from the leaf (RFC 9162 2.1.3.2).

    Proves nothing by itself, and does not bind `size` (module's text).

    Raises:
        TrustError: ``STO-L020`` when no tree of `size` leaves has a path of that length.
    """
    if not 0 <= index < size:
        raise TrustError("STO-L020", f"a tree of {size} leaves has no leaf {index}")
    first, last, result = index, size - 1, leaf
    for step in path:
        if last == 0:
            raise TrustError("STO-L020", "the inclusion proof is too long")
        if first & 1 or first == last:
            result = node_hash(step, result)
            first, last = _climb(first, last)
        else:
            result = node_hash(result, step)
        first, last = first >> 1, last >> 1
    if last:
        raise TrustError("STO-L020", "the inclusion proof is too short")
    return result


def replay_consistency(
    old_size: int, new_size: int, old_root: bytes, path: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return both roots as a consistency proof computes them (0 < old < new).

    Proves nothing by itself, and does not bind the sizes (module's text).

    Raises:
        TrustError: ``STO-L020`` when no two such trees have a proof of that length.
    """
    if not path:
        raise TrustError("STO-L020", "the consistency proof is empty")
    steps = list(path)
    # A perfect old tree is one node of the new one, and its root is not sent again.
    if old_size & (old_size - 1) == 0:
        steps.insert(0, old_root)
    first, last = old_size - 1, new_size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old_seen = new_seen = steps[0]
    for step in steps[1:]:
        if last == 0:
            raise TrustError("STO-L020", "the consistency proof is too long")
        if first & 1 or first == last:
            old_seen = node_hash(step, old_seen)
            new_seen = node_hash(step, new_seen)
            first, last = _climb(first, last)
        else:
            new_seen = node_hash(new_seen, step)
        first, last = first >> 1, last >> 1
    if last:
        raise TrustError("STO-L020", "the consistency proof is too short")
    return old_seen, new_seen


def _climb(first: int, last: int) -> tuple[int, int]:
    """Skip the levels at which the right edge has no sibling."""
    # A left node at the right edge has no sibling there and rises unchanged.
    while first and not first & 1:
        first, last = first >> 1, last >> 1
    return first, last


MAX_SIZE = 2**63 - 1
MAX_ORIGIN_BYTES = 255
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log commits to."""

    origin: str  # the log's name, equal to its key's name
    size: int  # number of leaves
    root: bytes  # RFC 6962 root over them, 32 bytes


def decode_base64(text: str, *, code: str = "STO-L010") -> bytes:
    """Return the bytes of canonical base64, or raise TrustError with `code`."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TrustError(code, "not valid base64") from None
    if base64.b64encode(data).decode() != text:
        raise TrustError(code, "not canonical base64")
    return data


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
        TrustError: ``STO-L020`` when the trees are not shown to be consistent, or are
            of two logs.
    """
    if old.origin != new.origin:
        raise TrustError("STO-L020", "the two checkpoints are of different logs")
    if not 0 <= old.size <= new.size:
        raise TrustError("STO-L020", f"the log shrank from {old.size} to {new.size}")
    # For these there is no proof to send: nothing came before, or nothing was added.
    if old.size in {0, new.size}:
        expected = new.root if old.size == new.size else EMPTY_ROOT
        if path or old.root != expected:
            raise TrustError("STO-L020", "the two trees are not consistent")
        return
    if replay_consistency(old.size, new.size, old.root, path) != (old.root, new.root):
        raise TrustError("STO-L020", "the two trees are not consistent")
