"""Find and locate every fault of a log: go on after the first, change nothing.

`stoilo.audit.log.startup` and `.read.reader` stop at the first disagreement, for then
nothing may be trusted. An operator who must decide which backup to restore needs more:
which file, which tile, which leaf, and what it should hold. Everything is compared with
everything else; the signed root decides. May run beside the writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import LogPolicy, SignedCheckpoint
from stoilo.audit.format.tiles import Tile
from stoilo.audit.read.fsck_beside import check_beside, check_strays
from stoilo.audit.read.fsck_databases import (
    LeafRows,
    States,
    check_ages,
    check_head_row,
    check_indexes,
    check_structure,
    read_head,
    read_states,
)
from stoilo.audit.read.fsck_parts import (
    Anchor,
    Fault,
    FaultList,
    LogParts,
    Severity,
    find_anchor,
    read_policy,
)
from stoilo.audit.read.fsck_tree import TreeCheck, check_roots


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a check of a whole log found.

    Attributes:
        origin: the log's name, empty when nothing tells it.
        published: leaves under the checkpoint that was used.
        acknowledged: leaves that the head database knows; None without one.
        committed: leaves that the log database says it holds; None without one.
        is_proven: whether the tree built from the sound copies has a signed root: then
            every finding about a copy is certain.
        own_policy: whether the key came from the log itself.
        findings: faults and notices, in the order in which they were found.
        omitted: further findings that were only counted.
        faults: how many of all findings are faults.
    """

    origin: str
    published: int
    acknowledged: int | None
    committed: int | None
    is_proven: bool
    own_policy: bool
    findings: tuple[Fault, ...]
    omitted: int
    faults: int

    @property
    def first_fault(self) -> Fault | None:
        """The first fault, None when there is none."""
        faults = (one for one in self.findings if one.severity is Severity.FAULT)
        return next(faults, None)

    @property
    def is_sound(self) -> bool:
        """Whether there is no fault."""
        return self.faults == 0


def fsck_log(location: str | Path, policy: LogPolicy | None = None) -> FsckReport:
    """Check every part of the log at a path; nothing is written.

    Args:
        location: a data directory, its ``audit`` directory or a log directory.
        policy: whose signatures count; None takes the log's own copy.

    Raises:
        UsageError: ``STO-L001`` when there is no log.
        UnreachableError: ``STO-L002`` when permission to read is missing.
    """
    return check_log(Path(location), policy)[0]


def check_log(
    path: Path, policy: LogPolicy | None = None
) -> tuple[FsckReport, SignedCheckpoint | None, int]:
    """Check a log as `fsck_log`; also return what is signed, and how many tiles were read."""
    found = FaultList()
    parts = LogParts(path, found)
    # What is read first is older: a writer beside us only ever adds. It publishes before
    # it remembers that, so what it remembers is read before what it has published.
    trusted = read_policy(parts, policy)
    remembered = read_head(parts)
    note = parts.read("checkpoint", MAX_NOTE_BYTES)
    stored = parts.tiles()
    states = read_states(parts)
    anchor = find_anchor(parts, note, remembered, trusted)
    check_structure(parts)
    if states.head is not None:
        check_head_row(parts)
    check_ages(parts, states, anchor)
    walk = _walk(parts, stored, states, anchor)
    is_proven = check_roots(parts, states, anchor, walk.result)
    check_strays(parts)
    report = FsckReport(
        origin=_origin(states, anchor),
        published=anchor.checkpoint.size if anchor else 0,
        acknowledged=states.head.head.size if states.head else None,
        committed=states.log.frontier.size if states.log else None,
        is_proven=is_proven,
        own_policy=policy is None,
        findings=tuple(found.kept),
        omitted=found.omitted,
        faults=found.faults,
    )
    return report, anchor.signed if anchor else None, walk.checked


def _open_rows(parts: LogParts, states: States) -> LeafRows | None:
    if parts.paths is None or not parts.paths.database.exists():
        return None
    rows = LeafRows(parts, parts.paths.database)
    return rows if states.log is not None or rows.is_there() else None


def _walk(
    parts: LogParts, stored: list[Tile], states: States, anchor: Anchor | None
) -> TreeCheck:
    """Build the tree again, and check what points into it."""
    rows = _open_rows(parts, states)
    head = states.head.head.size if states.head else 0
    committed = states.log.frontier.size if states.log else head
    size = anchor.checkpoint.size if anchor else 0
    root = anchor.checkpoint.root if anchor and anchor.signed else None
    walk = TreeCheck(
        parts, stored, rows, committed, size, root, (size, head, committed)
    )
    walk.run()
    _check_support(parts, rows, states, walk.result.damaged)
    return walk


def _check_support(
    parts: LogParts, rows: LeafRows | None, states: States, damaged: frozenset[int]
) -> None:
    """Check what points into the tree, and what lies beside it; closes `rows`."""
    try:
        if rows is not None and states.log is not None:
            check_indexes(parts, rows, damaged)
        head = states.head.head.size if states.head else 0
        check_beside(parts, rows, head, damaged)
    finally:
        if rows is not None:
            rows.close()


def _origin(states: States, anchor: Anchor | None) -> str:
    if anchor is not None:
        return anchor.checkpoint.origin
    state = states.log or states.head
    return state.origin if state is not None else ""
