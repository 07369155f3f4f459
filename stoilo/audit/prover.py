"""Make a proof from the outside: read-only, from a data or log directory, or a URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.checkpoint import parse_checkpoint
from stoilo.audit.leaf import LeafKind, parse_leaf
from stoilo.audit.merkle import check_inclusion, inclusion_proof, leaf_hash
from stoilo.audit.nodes import TileNodes
from stoilo.audit.note import parse_note
from stoilo.audit.policy import open_checkpoint, parse_policy
from stoilo.audit.proof import Proof, render_proof
from stoilo.audit.source import LogSource, open_source
from stoilo.audit.store import DiskRecords
from stoilo.audit.tiles import ENTRIES, TILE_WIDTH, decode_bundle, tile_at
from stoilo.core.errors import TrustError, UsageError, WaitError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FoundProof", "prove_leaf"]

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class FoundProof:
    """A leaf, where it lies, and the proof's text; checked before it is handed out."""

    index: int
    size: int
    leaf: bytes
    proof: bytes


def prove_leaf(location: str | Path, name: str) -> FoundProof:
    """Return the proof of a task's leaf (newest admission first) or of a plain index.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L057`` no such task.
        WaitError: ``STO-L056`` the leaf is not published yet.
        TrustError: the log does not prove what it says.
    """
    source = open_source(location)
    index = _find_index(source, name)
    note = source.checkpoint()
    if note is None:
        raise UsageError("STO-L001", "no checkpoint is published here")
    policy = source.policy()
    if policy is not None:
        open_checkpoint(note, parse_policy(policy))
    checkpoint = parse_checkpoint(parse_note(note).text)
    if index >= checkpoint.size:
        raise WaitError(
            "STO-L056",
            f"leaf {index} is not under the published checkpoint of {checkpoint.size}",
        )
    nodes = TileNodes(source.tile)
    path = inclusion_proof(
        index, checkpoint.size, lambda level, at: nodes.node(level, at, checkpoint.size)
    )
    leaf = _read_leaf(source, index, checkpoint.size)
    check_inclusion(leaf_hash(leaf), index, checkpoint.size, path, checkpoint.root)
    proof = render_proof(Proof(index, tuple(path), note))
    return FoundProof(index, checkpoint.size, leaf, proof)


def _find_index(source: LogSource, name: str) -> int:
    if source.paths is not None and source.paths.database.exists():
        records = DiskRecords(source.paths)
        try:
            found = records.find_label(name)
            kinds = [_kind(records.leaves(at, at + 1)) for at in found]
        finally:
            records.close()
        admitted = [
            at
            for at, kind in zip(found, kinds, strict=True)
            if kind is LeafKind.ADMISSION
        ]
        if found:
            return (admitted or found)[-1]
    if _INDEX.fullmatch(name):
        return int(name)
    raise UsageError("STO-L057", f"the log has no leaf for {name[:80]!r}")


def _kind(leaves: list[bytes]) -> LeafKind | None:
    try:
        return parse_leaf(leaves[0]).kind
    except (TrustError, IndexError):
        return None


def _read_leaf(source: LogSource, index: int, size: int) -> bytes:
    tile = tile_at(ENTRIES, index // TILE_WIDTH, size)
    data = source.tile(tile)
    if data is None:
        data = source.tile(tile.full)
    if data is None:
        raise TrustError("STO-L031", f"the bundle of leaf {index} is missing")
    return decode_bundle(data, tile.width)[index % TILE_WIDTH]
