"""Find a task's entries and prove them from the outside: read-only, from anywhere."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.leaf import LeafKind, parse_leaf
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.record import (
    Mention,
    MentionKind,
    Record,
    WorkunitRecord,
    parse_record,
    task_commitment,
)
from stoilo.audit.format.tiles import TILE_WIDTH
from stoilo.audit.log.store import DiskRecords
from stoilo.audit.read.search import Query, is_explained_by, search_log
from stoilo.audit.read.view import LogView, open_log
from stoilo.core.errors import TrustError, UsageError

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_COMMITMENT = re.compile(r"[0-9a-f]{64}")
_EXPLAINED_WITHIN = 8
"""Bundles, the admission's own first, in which its record is looked for."""


@dataclass(frozen=True, slots=True)
class FoundProof:
    """A leaf, where it lies, and the proof's text; checked before it is handed out."""

    index: int
    size: int
    leaf: bytes
    proof: bytes


def prove_leaf(
    location: str | Path, name: str, policy: LogPolicy | None = None
) -> FoundProof:
    """Return the proof of a task's leaf (newest admission first) or of a plain index.

    The leaf itself travels in the proof's ``extra``.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy, ``STO-L057`` no such
            task.
        WaitError: ``STO-L056`` the leaf is not published yet.
        TrustError: the log does not prove what it says.
    """
    log = open_log(location, policy)
    leaves = _labelled(log, name)
    if not leaves:
        leaves = {at: log.prove(at)[0] for at in find_entries(log, name)}
    admitted = [at for at, leaf in leaves.items() if _is_admission(leaf)]
    index = max(admitted or leaves)
    leaf, proof = log.prove(index)
    return FoundProof(index, log.size, leaf, proof)


def find_entries(log: LogView, name: str) -> list[int]:
    """Return the places that a name means, lowest first, never none.

    Args:
        log: the log.
        name: a task's id or its public commitment (64 hex digits), or an index. Below a
            data directory the server's own labels answer; elsewhere every record is read.

    Raises:
        UsageError: ``STO-L057`` when the log has none.
        TrustError: the log is not what was signed.
    """
    found = _labelled(log, name)
    if found:
        return sorted(found)
    if _INDEX.fullmatch(name):
        return [int(name)]
    task = name if _COMMITMENT.fullmatch(name) else task_commitment(name)
    query = Query(mentions=frozenset({Mention(MentionKind.COMMITMENT, task)}))
    places: set[int] = set()
    for entry in search_log(log, query, limit=1000).found:
        places.add(entry.index)
        if isinstance(entry.record, WorkunitRecord):
            at = entry.record.admission
            if at < log.size and is_explained_by(entry.record, at, log.prove(at)[0]):
                places.add(at)
    if not places:
        raise UsageError("STO-L057", f"the log has no leaf for {name[:80]!r}")
    return sorted(places)


def _labelled(log: LogView, name: str) -> dict[int, bytes]:
    """Return the leaves that a data directory's own database labels so, by place."""
    paths = log.source.paths
    if paths is None or not paths.database.exists():
        return {}
    with contextlib.closing(DiskRecords(paths)) as records:
        places = records.find_label(name)
        return {at: leaf for at in places for leaf in records.leaves(at, at + 1)}


def _is_admission(leaf: bytes) -> bool:
    try:
        return parse_leaf(leaf).kind is LeafKind.ADMISSION
    except TrustError:
        return False


def explain_admission(
    log: LogView, index: int, data: bytes
) -> tuple[int, Record] | None:
    """Return place and record that explain the admission `data` at `index`.

    It lies soon after the admission; None when it was not found there.

    Raises:
        TrustError: a leaf or record is not what it should be.
    """
    first = index // TILE_WIDTH
    end = min(first + _EXPLAINED_WITHIN, -(-log.size // TILE_WIDTH))
    for number in range(first, end):
        for place, text in enumerate(log.source.records_of_tile(number)):
            at = number * TILE_WIDTH + place
            if text is None or at <= index or at >= log.size:
                continue
            if not is_explained_by(parse_record(text), index, data):
                continue
            entry = log.entry(at)
            if is_explained_by(entry.record, index, data):
                assert entry.record is not None  # noqa: S101 - it explains
                return at, entry.record
    return None
