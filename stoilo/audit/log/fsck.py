"""Find and locate every fault of a log: go on after the first, change nothing.

An operator who must decide which backup to restore needs to know which file, and where in
it. Everything is compared with everything else; the signed root decides. May run beside
the writer. `stoilo.audit.log.startup` asks the same question, of databases and tree alone,
before a log goes on; what a crash between two steps can leave is no fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.merkle import EMPTY_ROOT, parse_checkpoint
from stoilo.audit.format.note import (
    MAX_NOTE_BYTES,
    NoteSignature,
    VerifierKey,
    parse_note,
)
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    open_checkpoint,
    parse_policy,
    render_policy,
)
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import check_record
from stoilo.audit.log.fsck_databases import (
    LeafRows,
    States,
    check_ages,
    check_indexes,
    check_structure,
    open_rows,
    read_head,
    read_states,
)
from stoilo.audit.log.fsck_parts import (
    Anchor,
    Fault,
    LogParts,
    find_parts,
    refuse_faults,
)
from stoilo.audit.log.fsck_tree import TreeCheck, check_roots
from stoilo.audit.log.seen import SeenStore
from stoilo.audit.log.side import SideStore, side_path
from stoilo.audit.log.store import unseal
from stoilo.core.errors import StoiloError, TrustError

_FLIPPED_BITS = 4  # in a key id; another key's differs in 16 of 32, give or take


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a check of a whole log found."""

    origin: str  # the log's name, empty when nothing tells it
    size: int  # leaves under the published checkpoint
    root: str  # the tree's root there, hex
    tiles_checked: int  # tiles and bundles compared
    # True when the key came from the log itself: it then only agrees with itself, and
    # somebody who replaced all of it would not be noticed
    own_policy: bool
    # newest witness time, POSIX seconds, None without witnesses
    checkpoint_time: int | None
    witnesses: tuple[str, ...]  # policy names of those who cosigned, sorted
    # acknowledged leaves not yet published; None without databases
    unpublished: int | None = None
    # leaves that the log database says it holds; None without one
    committed: int | None = None
    # whether the tree built from the sound copies has a signed root: then every finding
    # about a copy is certain
    is_proven: bool = True
    # faults and notices, in the order in which they were found
    findings: tuple[Fault, ...] = ()
    omitted: int = 0  # further findings that were only counted
    faults: int = 0  # how many of all findings are faults

    @property
    def is_sound(self) -> bool:
        """Whether there is no fault."""
        return self.faults == 0

    def refuse_faults(self) -> None:
        """Raise the first fault, if there is one."""
        refuse_faults(self.findings)


@dataclass(frozen=True, slots=True)
class LogContents:
    """What databases and tiles of one log say, once they were compared."""

    states: States  # of the databases
    note: bytes | None  # the published checkpoint
    anchor: Anchor | None  # what the log was measured by
    tree: TreeCheck  # the walk over all leaves
    is_proven: bool


def fsck_log(
    # a data directory, its ``audit`` directory or a log directory
    location: str | Path,
    # whose signatures count; None takes the log's own copy
    policy: LogPolicy | None = None,
) -> LogReport:
    """Check every part of the log at a path; nothing is written.

    Raises:
        UsageError: ``STO-L001`` when there is no log.
        UnreachableError: ``STO-L002`` when permission to read is missing.
    """
    parts = find_parts(Path(location))
    trusted = _read_policy(parts, policy)
    check_structure(parts)
    found = compare_parts(parts, trusted, every=True)
    anchor, states = found.anchor, found.states
    checkpoint = anchor.checkpoint if anchor else None
    signed = anchor.signed if anchor else None
    size = checkpoint.size if checkpoint else 0
    told = checkpoint or states.log or states.head
    return LogReport(
        origin=told.origin if told else "",
        size=size,
        root=(checkpoint.root if checkpoint else EMPTY_ROOT).hex(),
        tiles_checked=found.tree.checked,
        own_policy=policy is None,
        checkpoint_time=signed.time if signed else None,
        witnesses=tuple(sorted(signed.witnesses)) if signed else (),
        unpublished=max(states.acknowledged - size, 0) if states.head else None,
        committed=states.log.frontier.size if states.log else None,
        is_proven=found.is_proven,
        findings=tuple(parts.findings),
        omitted=parts.omitted,
        faults=parts.faults,
    )


def compare_parts(
    parts: LogParts,  # takes what is found
    policy: LogPolicy | None,  # whose signatures count; None takes checkpoints as said
    *,
    every: bool,  # also what no leaf depends on: indexes, records, seen checkpoints
) -> LogContents:
    """Compare databases, tiles and checkpoint with each other, leaf by leaf."""
    # What is read first is older: a writer beside us only ever adds. It publishes before
    # it remembers that, so what it remembers is read before what it has published.
    remembered = read_head(parts)
    note = parts.read("checkpoint", MAX_NOTE_BYTES)
    stored = parts.tiles()
    states = read_states(parts)
    copy = remembered.published if remembered else None
    anchor = _find_anchor(parts, note, copy, policy)
    check_ages(parts, states, anchor, begun=bool(stored))
    with open_rows(parts, states) as rows:
        tree = TreeCheck(parts, stored, rows, states, anchor)
        tree.run()
        if every:
            if rows is not None and states.log is not None:
                check_indexes(parts, rows, tree.damaged)
            check_beside(parts, rows, states.acknowledged, tree.damaged)
    is_proven = check_roots(parts, states, anchor, tree)
    return LogContents(states, note, anchor, tree, is_proven)


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
        parts.fault("STO-L032", name, message, remedy=remedy)
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
        parts.fault("STO-L032", name, text, remedy=remedy)
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
        parts.fault("STO-L041", published.file, text)
    elif size == known and published.checkpoint != copy.checkpoint:
        text = f"has another root than its copy in {copy.file} of the same size"
        remedy = "keep both: signed by one key they prove misbehaviour"
        parts.fault("STO-L044", published.file, text, remedy=remedy)


# -- what lies beside the log: the side store's objects and the checkpoints seen ---------

_CHUNK = 256
_MISSING = "its record is missing"
_NOT_INDEXED = "the index does not lead to it"
_NAMED = 100


def find_unfit_leaves(
    side: SideStore,  # opened for reading
    entries: Iterable[tuple[int, bytes]],  # leaves of the log (place, bytes), in order
) -> Iterator[tuple[int, str]]:
    """Yield each leaf that needs a record, with what is wrong about it, or with nothing."""
    waiting = iter(entries)
    while chunk := list(itertools.islice(waiting, _CHUNK)):
        leaves: list[tuple[int, Leaf]] = []
        found: dict[int, str] = {}
        for place, entry in chunk:
            try:
                leaf = parse_leaf(entry)
            except TrustError as error:  # not a leaf that this version writes
                found[place] = error.message
                continue
            if leaf.kind is not LeafKind.ADMISSION:
                leaves.append((place, leaf))
        texts = side.raw_records([leaf.digest for _, leaf in leaves])
        records = {}
        for place, leaf in leaves:
            try:
                found[place] = _MISSING
                if (data := texts.get(leaf.digest)) is not None:
                    records[place] = check_record(leaf, data)
                    found[place] = ""
            except TrustError as error:
                found[place] = error.message
        found |= dict.fromkeys(side.find_unindexed(records), _NOT_INDEXED)
        yield from sorted(found.items())


def check_beside(
    parts: LogParts,
    rows: LeafRows | None,  # the log database's leaves, None when there is none
    size: int,  # how many of them are acknowledged: their records must be there
    damaged: frozenset[int],  # places of leaves already reported
) -> None:
    """Check records, sources and seen checkpoints against their digests and leaves."""
    if parts.paths is None:
        return
    side = side_path(parts.top)
    if side.exists():
        name = parts.name(side)
        _report(parts, name, "STO-L141", parts.guard(name, lambda: _objects(side)))
        if rows is not None:
            leaves = (one for one in rows.acknowledged(size) if one[0] not in damaged)
            _check_leaves(parts, side, leaves, size)
    seen = side.with_name("seen.sqlite")
    if seen.exists():
        name = parts.name(seen)
        _report(parts, name, "STO-L141", parts.guard(name, lambda: list(_seen(seen))))


def _report(
    parts: LogParts, name: str, code: str, faults: list[tuple[str, str]] | None
) -> None:
    for place, message in (faults or [])[:_NAMED]:
        parts.fault(code, name, message, place=place)


def _objects(path: Path) -> list[tuple[str, str]]:
    with closing(SideStore.read_file(path)) as side:
        return list(side.scrub())


def _check_leaves(
    parts: LogParts, path: Path, leaves: Iterable[tuple[int, bytes]], size: int
) -> None:
    """Check each leaf's record; the newest may have no index yet."""
    name = parts.name(path)
    faults = parts.guard(name, lambda: _unfit(path, leaves)) or []
    newest = size - 1
    # The server adds rows to the index after the leaf: a crash leaves the newest
    # without.
    while faults and faults[-1] == (newest, _NOT_INDEXED):
        faults.pop()
        newest -= 1
    if newest < size - 1:
        text = "these leaves are not in the index yet; the server adds them"
        place = f"leaves {newest + 1} to {size - 1}"
        parts.notice("STO-L096", name, text, place=place)
    wrong = [(f"leaf {place}", problem) for place, problem in faults]
    _report(parts, name, "STO-L141", wrong)


def _unfit(path: Path, leaves: Iterable[tuple[int, bytes]]) -> list[tuple[int, str]]:
    with closing(SideStore.read_file(path)) as side:
        return [one for one in find_unfit_leaves(side, leaves) if one[1]]


def _seen(path: Path) -> Iterator[tuple[str, str]]:
    with closing(SeenStore(path, read_only=True)) as store:
        for place in range(store.size()):
            try:
                store.rows(place, place + 1)
            except StoiloError as error:
                yield f"row {place}", error.message
