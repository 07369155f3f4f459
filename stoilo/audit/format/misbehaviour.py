"""Proofs that a log signed two histories: self-contained, checked offline. Pure.

A proof holds two checkpoints that the log's key signed. Of the same size, they need
nothing else. Otherwise come the hashes that make up the larger tree, cut where the
smaller one ends: all of them lead to the larger root, the first few alone to what the
smaller root would have to be, and what the log signed instead is another one.

    stoilo-misbehaviour/v1
    # what happened, for people; not part of the proof
    path <base64>             0…126 hashes, left to right
    first
    | <the smaller checkpoint, a signed note, line by line>
    second
    | <the larger one>

The idea is that of Go's checksum database client; the form is ours. Whoever checks needs
the log's key from somewhere else. Witnesses are not asked: the log answers for its key.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stoilo.audit.format.merkle import (
    HASH_BYTES,
    Checkpoint,
    NodeReader,
    decode_base64,
    join_roots,
    node_hash,
    parse_checkpoint,
    range_root,
)
from stoilo.audit.format.note import MAX_NOTE_BYTES, parse_note
from stoilo.audit.format.policy import (
    LogPolicy,
    SignedCheckpoint,
    log_keys_of,
    open_checkpoint,
)
from stoilo.core.errors import TrustError

_FIRST_LINE: Final = "stoilo-misbehaviour/v1"
_SECTIONS: Final = ("first", "second")
_MAX_PATH: Final = 126
MAX_MISBEHAVIOUR_BYTES: Final = 4 * MAX_NOTE_BYTES


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """What a proof has shown: no log that only appends has both of these trees."""

    first: Checkpoint  # the smaller checkpoint (or one of two of the same size)
    second: Checkpoint  # the larger one
    # the root that the second tree has at the first one's size; the first signed
    # another
    root: bytes
    # policy names of witnesses that cosigned both: they misbehaved too
    witnesses: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A parsed proof, nothing checked."""

    path: tuple[bytes, ...]
    first: bytes
    second: bytes


def is_accusation(data: bytes) -> bool:
    """Whether bytes claim to be such a proof."""
    return data.startswith(f"{_FIRST_LINE}\n".encode())


def disclose(small: int, large: int, node: NodeReader) -> list[bytes]:
    """Return the hashes of a tree of `large` leaves, cut after `small` (0 < small < large).

    The first ones are the perfect subtrees over [0, small).
    """
    return [range_root(start, end, node) for start, end in _pieces(0, large, small)]


def _pieces(start: int, end: int, cut: int) -> Iterator[tuple[int, int]]:
    """Yield the nodes of [start, end) that do not straddle `cut`, left to right."""
    if end <= cut or start >= cut:
        yield start, end
        return
    middle = start + (1 << ((end - start - 1).bit_length() - 1))
    yield from _pieces(start, middle, cut)
    yield from _pieces(middle, end, cut)


def _rebuild(start: int, end: int, cut: int, pieces: Iterator[bytes]) -> bytes:
    """Return the root over [start, end) from what `disclose` gave."""
    if end <= cut or start >= cut:
        piece = next(pieces, None)
        if piece is None:
            raise TrustError("STO-L020", "the proof's path is too short")
        return piece
    middle = start + (1 << ((end - start - 1).bit_length() - 1))
    left = _rebuild(start, middle, cut, pieces)
    return node_hash(left, _rebuild(middle, end, cut, pieces))


def render_misbehaviour(
    one: bytes,  # a note whose signature the caller verified
    other: bytes,  # another one
    node: NodeReader,  # reads the larger one's tree; not asked when the sizes are equal
) -> bytes:
    """Return the proof that two signed notes disagree, in either order.

    The caller checks the proof before he shows it: `check_misbehaviour`.

    Raises:
        TrustError: ``STO-L020`` when one of the trees is empty: it agrees with all.
    """
    notes = sorted((one, other), key=lambda note: _checkpoint_of(note).size)
    first, second = (_checkpoint_of(note) for note in notes)
    path: list[bytes] = []
    if first.size == 0:
        raise TrustError("STO-L020", "an empty tree contradicts no other")
    if first.size != second.size:
        path = disclose(first.size, second.size, node)
    head = [_FIRST_LINE, *(f"# {line}" for line in _explain(first, second, path))]
    head += [f"path {base64.b64encode(step).decode()}" for step in path]
    for name, note in zip(_SECTIONS, notes, strict=True):
        lines = note.decode().split("\n")[:-1]
        head += [name, *(f"| {line}".rstrip() for line in lines)]
    return "".join(f"{line}\n" for line in head).encode()


def _checkpoint_of(note: bytes) -> Checkpoint:
    return parse_checkpoint(parse_note(note).text)


def _explain(first: Checkpoint, second: Checkpoint, path: list[bytes]) -> list[str]:
    """Return what a person reads on top of a proof."""
    lines = [
        f"The log {first.origin} has signed two histories.",
        f"It signed {first.size} leaves with root {_base64(first.root)}",
        f"and {second.size} leaves with root {_base64(second.root)}.",
    ]
    if path:
        own = join_roots(path[: first.size.bit_count()])
        lines.append(f"The second tree's first {first.size} leaves have another root,")
        lines.append(f"{_base64(own)}: entries that the log acknowledged were changed.")
    lines.append(
        "Anybody who has the log's key from a place of his own can check this:"
    )
    lines.append("stoilo audit check THIS_FILE --policy FILE_OR_KEY")
    return lines


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def check_misbehaviour(data: bytes, policy: LogPolicy) -> Misbehaviour:
    """Check a proof from anybody; `policy` is whose key the log has.

    Raises:
        TrustError: ``STO-L010``…``STO-L016`` malformed, or a checkpoint that
            the log's key did not sign, ``STO-L020`` they do not contradict each other.
    """
    parts = _parse(data)
    own = log_keys_of(policy)
    first = open_checkpoint(parts.first, own).checkpoint
    second = open_checkpoint(parts.second, own).checkpoint
    if first.origin != second.origin or not 0 < first.size <= second.size:
        raise TrustError("STO-L020", "the checkpoints are not two of one log, in order")
    root = _root_shown(first, second, parts.path)
    if root == first.root:
        raise TrustError("STO-L020", "the two checkpoints agree with each other")
    both = _cosigners(parts.first, policy) & _cosigners(parts.second, policy)
    return Misbehaviour(first, second, root, both)


def _root_shown(
    first: Checkpoint, second: Checkpoint, path: tuple[bytes, ...]
) -> bytes:
    """Return the second tree's root at the first one's size, as the path shows it."""
    if first.size == second.size:
        if path:
            raise TrustError("STO-L020", "trees of one size need no path")
        return second.root
    pieces = iter(path)
    if _rebuild(0, second.size, first.size, pieces) != second.root or any(pieces):
        raise TrustError("STO-L020", "the path does not lead to the second root")
    return join_roots(path[: first.size.bit_count()])


def _cosigners(note: bytes, policy: LogPolicy) -> frozenset[str]:
    """Return the witnesses whose cosignatures of a note verify."""
    try:
        signed: SignedCheckpoint = open_checkpoint(
            note, LogPolicy(policy.logs, policy.witnesses)
        )
    except TrustError:
        return frozenset()
    return signed.witnesses


def _parse(data: bytes) -> _Parts:
    """Parse hostile bytes; raises ``STO-L010``."""
    if len(data) > MAX_MISBEHAVIOUR_BYTES or not data.endswith(b"\n"):
        raise TrustError("STO-L010", "the file is cut or too long for a proof")
    try:
        lines = data.decode().split("\n")[:-1]
    except UnicodeDecodeError:
        raise TrustError("STO-L010", "the file is not UTF-8 text") from None
    if lines.pop(0) != _FIRST_LINE:
        raise TrustError("STO-L010", f"a proof begins with {_FIRST_LINE}")
    lines = lines[_count(lines, "# ") :]
    steps = _count(lines, "path ")
    path = tuple(_parse_hash(line.removeprefix("path ")) for line in lines[:steps])
    rest = lines[steps:]
    notes = []
    for name in _SECTIONS:
        if not rest or rest.pop(0) != name:
            raise TrustError("STO-L010", f"the proof has no section {name!r}")
        length = _count(rest, "| ")
        notes.append("".join(f"{line[2:]}\n" for line in rest[:length]).encode())
        rest = rest[length:]
    if rest or len(path) > _MAX_PATH:
        raise TrustError("STO-L010", "the proof has too many lines")
    return _Parts(path, *notes)


def _count(lines: list[str], prefix: str) -> int:
    """Return how many lines at the beginning have this prefix."""
    for place, line in enumerate(lines):
        if not line.startswith(prefix) and line != prefix.rstrip():
            return place
    return len(lines)


def _parse_hash(text: str) -> bytes:
    value = decode_base64(text, code="STO-L010")
    if len(value) != HASH_BYTES:
        raise TrustError("STO-L010", "a hash of the path has 32 bytes")
    return value
