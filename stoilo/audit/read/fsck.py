"""Find and locate every fault of a log: go on after the first, change nothing.

`stoilo.audit.log.startup` and `.read.reader` stop at the first disagreement, for then
nothing may be trusted. An operator who must decide which backup to restore needs more:
which file, and where in it. Everything is compared with everything else; the signed root
decides. May run beside the writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.merkle import parse_checkpoint
from stoilo.audit.format.note import (
    MAX_NOTE_BYTES,
    NoteSignature,
    VerifierKey,
    parse_note,
)
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    SignedCheckpoint,
    open_checkpoint,
    parse_policy,
    render_policy,
)
from stoilo.audit.log.store import unseal
from stoilo.audit.read.fsck_beside import check_beside, check_strays
from stoilo.audit.read.fsck_databases import (
    LeafRows,
    States,
    check_ages,
    check_indexes,
    check_structure,
    read_head,
    read_states,
)
from stoilo.audit.read.fsck_parts import Anchor, Fault, LogParts, Severity
from stoilo.audit.read.fsck_tree import TreeCheck, check_roots
from stoilo.core.errors import StoiloError

_FLIPPED_BITS = 4  # in a key id; another key's differs in 16 of 32, give or take


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a check of a whole log found."""

    origin: str  # the log's name, empty when nothing tells it
    published: int  # leaves under the checkpoint that was used
    acknowledged: int | None  # leaves that the head database knows; None without one
    # leaves that the log database says it holds; None without one
    committed: int | None
    # whether the tree built from the sound copies has a signed root: then every finding
    # about a copy is certain
    is_proven: bool
    own_policy: bool  # whether the key came from the log itself
    # faults and notices, in the order in which they were found
    findings: tuple[Fault, ...]
    omitted: int  # further findings that were only counted
    faults: int  # how many of all findings are faults

    @property
    def first_fault(self) -> Fault | None:
        """The first fault, None when there is none."""
        faults = (one for one in self.findings if one.severity is Severity.FAULT)
        return next(faults, None)

    @property
    def is_sound(self) -> bool:
        """Whether there is no fault."""
        return self.faults == 0


def fsck_log(
    # a data directory, its ``audit`` directory or a log directory
    location: str | Path,
    # whose signatures count; None takes the log's own copy
    policy: LogPolicy | None = None,
) -> FsckReport:
    """Check every part of the log at a path; nothing is written.

    Raises:
        UsageError: ``STO-L001`` when there is no log.
        UnreachableError: ``STO-L002`` when permission to read is missing.
    """
    return check_log(Path(location), policy)[0]


def check_log(
    path: Path, policy: LogPolicy | None = None
) -> tuple[FsckReport, SignedCheckpoint | None, int]:
    """Check a log as `fsck_log`; also return what is signed, and how many tiles were read."""
    parts = LogParts(path)
    trusted = _read_policy(parts, policy)
    # What is read first is older: a writer beside us only ever adds. It publishes before
    # it remembers that, so what it remembers is read before what it has published.
    remembered = read_head(parts)
    note = parts.read("checkpoint", MAX_NOTE_BYTES)
    stored = parts.tiles()
    states = read_states(parts)
    copy = remembered.published if remembered else None
    anchor = _find_anchor(parts, note, copy, trusted)
    check_structure(parts)
    check_ages(parts, states, anchor)
    rows = _open_rows(parts, states)
    try:
        walk = TreeCheck(parts, stored, rows, states, anchor)
        walk.run()
        if rows is not None and states.log is not None:
            check_indexes(parts, rows, walk.damaged)
        check_beside(parts, rows, states.acknowledged, walk.damaged)
    finally:
        if rows is not None:
            rows.close()
    is_proven = check_roots(parts, states, anchor, walk)
    check_strays(parts)
    report = FsckReport(
        origin=_origin(states, anchor),
        published=anchor.checkpoint.size if anchor else 0,
        acknowledged=states.head.head.size if states.head else None,
        committed=states.log.frontier.size if states.log else None,
        is_proven=is_proven,
        own_policy=policy is None,
        findings=tuple(parts.findings),
        omitted=parts.omitted,
        faults=parts.faults,
    )
    return report, anchor.signed if anchor else None, walk.checked


def _origin(states: States, anchor: Anchor | None) -> str:
    if anchor is not None:
        return anchor.checkpoint.origin
    state = states.log or states.head
    return state.origin if state is not None else ""


def _open_rows(parts: LogParts, states: States) -> LeafRows | None:
    if parts.paths is None or not parts.paths.database.exists():
        return None
    rows = LeafRows(parts, parts.paths.database)
    return rows if states.log is not None or rows.is_there() else None


# -- what is signed ---------------------------------------------------------------


def _read_policy(parts: LogParts, given: LogPolicy | None) -> LogPolicy | None:
    """Check the log's own copy of its policy; return the policy to believe.

    `given` is trusted and wins; the log's own copy only lets it agree with itself.
    """
    name = parts.published("policy.txt")
    text = parts.read("policy.txt", MAX_POLICY_BYTES)
    if text is None:
        if given is None:
            message = "is missing, and no policy was given: no signature can be checked"
            remedy = "give --policy, or restore policy.txt"
            parts.fault("STO-L005", name, message, remedy=remedy)
        return given
    remedy = f"restore {name}; the server writes it again when it starts"
    try:
        own = parse_policy(text)
    except StoiloError as error:
        parts.fault(error.code, name, error.message, remedy=remedy)
        return given
    # Its last line is a digest of the others: a flipped bit in a comment shows too.
    if unseal(text) != render_policy(own):
        message = "is not in the form in which the log writes it"
        parts.fault("STO-L094", name, message, remedy=remedy)
    return given or own


def _find_anchor(
    parts: LogParts, note: bytes | None, copy: bytes | None, policy: LogPolicy | None
) -> Anchor | None:
    """Check the published checkpoint `note` and the head's `copy`; return the best."""
    name = parts.published("checkpoint")
    published = _judge(parts, note, name, policy)
    kept = None
    if copy is not None and parts.paths is not None:
        kept = _judge(parts, copy, parts.name(parts.paths.head), policy)
    if published is None and (
        kept is not None or (note is None and parts.paths is None)
    ):
        size = f"; one of {kept.checkpoint.size} leaves was published" if kept else ""
        text = f"is missing or unreadable{size}"
        remedy = "restore the log directory; the head database holds a copy of it"
        parts.fault("STO-L034", name, text, remedy=remedy)
    if published is not None and kept is not None:
        _compare(parts, published, kept)
    signed = [one for one in (published, kept) if one is not None and one.signed]
    return next(iter(signed), published or kept)


def _judge(
    parts: LogParts, note: bytes | None, file: str, policy: LogPolicy | None
) -> Anchor | None:
    """Return what a note says; report what does not hold about it."""
    if note is None:
        return None
    try:
        if policy is not None:
            signed = open_checkpoint(note, policy)
            _check_lines(parts, note, file, policy)
            return Anchor(signed.checkpoint, file, signed)
    except StoiloError as error:
        parts.fault(error.code, file, error.message)
    try:
        # What is not signed still says how large the log was meant to be.
        return Anchor(parse_checkpoint(parse_note(note).text), file)
    except StoiloError as error:
        if policy is None:
            parts.fault(error.code, file, error.message)
        return None


def _check_lines(parts: LogParts, note: bytes, file: str, policy: LogPolicy) -> None:
    """Report a signature line that is half of one of ours: nobody checks it then."""
    keys = [*policy.logs, *(one.key for one in policy.witnesses)]
    for item in parse_note(note).signatures:
        if any(_is_half(item, key) for key in keys):
            text = f"the signature line of {item.name!r} has a wrong name or key id"
            parts.fault("STO-L012", file, text)


def _is_half(item: NoteSignature, key: VerifierKey) -> bool:
    """Tell a damaged line from that of a key that has been replaced under its name."""
    # A flipped bit hides a line from every check: its key is then "unknown".
    differing = int.from_bytes(item.key_id) ^ int.from_bytes(key.key_id)
    if item.name != key.name:
        return differing == 0
    return 0 < differing.bit_count() <= _FLIPPED_BITS


def _compare(parts: LogParts, published: Anchor, copy: Anchor) -> None:
    size, known = published.checkpoint.size, copy.checkpoint.size
    if size < known:
        text = f"covers {size} leaves, but a checkpoint of {known} was published"
        parts.fault("STO-L045", published.file, text)
    elif size == known and published.checkpoint != copy.checkpoint:
        text = f"has another root than its copy in {copy.file} of the same size"
        remedy = "keep both: signed by one key they prove misbehaviour"
        parts.fault("STO-L046", published.file, text, remedy=remedy)
