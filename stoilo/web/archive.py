"""What the pages read: one log of a data directory, its records and published sources.

A `View` is one reader's moment: the checkpoint is read first, and everything else is
taken below its size, so that one page never shows two states. What is read is checked
again (records against leaves, objects against digests); what does not fit is shown as
what it is, a fault, and never hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stoilo.audit.format.facts import MentionKind, Record
from stoilo.audit.format.merkle import Checkpoint, leaf_hash, parse_checkpoint
from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import (
    Mention,
    check_record,
    parse_mention,
    task_commitment,
)
from stoilo.audit.format.tiles import TILE_WIDTH
from stoilo.audit.log.side import ObjectKind, SideStore, side_path
from stoilo.audit.read.source import (
    DirectorySource,
    LogSource,
    find_policy,
    read_entries,
)
from stoilo.core.digests import Digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError


@dataclass(frozen=True, slots=True)
class Head:
    """The published checkpoint, and what its signatures say under the log's own policy."""

    note: bytes  # the signed text
    checkpoint: Checkpoint  # origin, size and root
    # the text of the log's own copy, hostile; empty when it publishes none
    policy: bytes = b""
    witnesses: tuple[str, ...] = ()  # names of those who cosigned, sorted
    time: int | None = None  # newest cosignature, POSIX seconds; None without witnesses
    fault: str = ""  # why the signatures do not hold, empty when they do


@dataclass(frozen=True, slots=True)
class Entry:
    """One leaf with what is public about it."""

    index: int  # place in the log, from 0
    data: bytes  # the leaf's bytes
    # what they say, None when they are of no kind that this version knows
    leaf: Leaf | None
    # what the leaf's digest stands for, checked; None where there is none
    record: Record | None = None
    raw: bytes = b""  # the record's bytes as they are stored
    fault: str = ""  # what does not fit, empty when all does

    @property
    def hash(self) -> str:
        """The RFC 6962 leaf hash, hex."""
        return leaf_hash(self.data).hex()

    @property
    def kind(self) -> str:
        """The leaf's kind, ``unknown`` when it cannot be read."""
        return self.leaf.kind.value if self.leaf else "unknown"


class View:
    """One moment of a log; see the module's text. Not shared between threads."""

    def __init__(self, source: LogSource, head: Head, side: SideStore | None) -> None:
        self.head = head
        self.size = head.checkpoint.size
        self._source = source
        self._side = side
        self._bundles: dict[int, list[bytes]] = {}

    def entry(self, index: int) -> Entry | None:
        """Return one entry, None when no published checkpoint covers it.

        Raises:
            TrustError: ``STO-L010``, ``STO-L032`` the log's own files are broken.
        """
        if not 0 <= index < self.size:
            return None
        data = self._bundle(index // TILE_WIDTH)[index % TILE_WIDTH]
        try:
            leaf = parse_leaf(data)
        except TrustError as error:
            return Entry(index, data, None, fault=error.message)
        if leaf.kind is LeafKind.ADMISSION:
            return Entry(index, data, leaf)
        return self._with_record(Entry(index, data, leaf), leaf)

    def newest(self, before: int, count: int) -> list[Entry]:
        """Return up to `count` entries below place `before`, newest first."""
        start = min(max(before, 0), self.size)
        found = (self.entry(at) for at in range(start - 1, start - 1 - count, -1))
        return [entry for entry in found if entry is not None]

    def find(
        self, mention: Mention, *, before: int | None = None, limit: int = 200
    ) -> list[Entry]:
        """Return the `limit` newest entries whose record mentions this, newest first.

        Args:
            mention: what to look for.
            before: only places below this; None for all.
            limit: the most entries.
        """
        if self._side is None:
            return []
        end = self.size if before is None else min(before, self.size)
        places = self._side.find_newest(mention, end=end, limit=limit)
        found = (self.entry(place) for place in places)
        return [entry for entry in found if entry is not None]

    def source(self, digest: Digest | str) -> bytes | None:
        """Return a published source, None when it is not here.

        Raises:
            TrustError: ``STO-L141`` its bytes have changed on the disk.
        """
        return self._side.get(ObjectKind.SOURCE, digest) if self._side else None

    def was_deleted(self, digest: Digest | str) -> bool:
        """Whether a published source was here and was deleted on purpose."""
        deleted = self._side and self._side.was_deleted(ObjectKind.SOURCE, digest)
        return bool(deleted)

    def _with_record(self, entry: Entry, leaf: Leaf) -> Entry:
        """Return `entry` with its record, or with what is wrong about it."""
        fault, raw = "its record is not in the side store", None
        try:
            raw = self._side and self._side.get(ObjectKind.RECORD, leaf.digest)
            if raw:
                record = check_record(leaf, raw)
                return Entry(entry.index, entry.data, leaf, record, raw)
        except TrustError as error:
            fault = error.message
        return Entry(entry.index, entry.data, leaf, raw=raw or b"", fault=fault)

    def _bundle(self, number: int) -> list[bytes]:
        if number not in self._bundles:
            self._bundles[number] = read_entries(self._source.tile, number, self.size)
        return self._bundles[number]


@contextmanager
def look(data_dir: Path) -> Iterator[View]:
    """Give a view of the log of a data directory as it is published now.

    Raises:
        UnreachableError: ``STO-L056`` nothing is published yet, ``STO-L002``.
        TrustError: the log's own files are broken.
    """
    source = DirectorySource(data_dir) if data_dir.is_dir() else None
    note = source.checkpoint() if source else None
    if source is None or note is None:
        raise UnreachableError("STO-L056", "the log has published nothing yet")
    # The checkpoint first: all that is read after it is at least as new.
    head = _read_head(note, source)
    with ExitStack() as opened:
        side = None
        if side_path(data_dir).is_file():
            side = opened.enter_context(
                closing(SideStore.read_file(side_path(data_dir)))
            )
        yield View(source, head, side)


def _read_head(note: bytes, source: LogSource) -> Head:
    """Return what a published checkpoint says; a wrong signature is a fault, no error."""
    checkpoint = parse_checkpoint(parse_note(note).text)
    text = source.policy() or b""
    try:
        signed = open_checkpoint(note, find_policy(source))
    except StoiloError as error:
        return Head(note, checkpoint, text, fault=error.message)
    return Head(note, checkpoint, text, tuple(sorted(signed.witnesses)), signed.time)


# -- what a visitor typed into the search field: hostile text to one kind of question ---

MAX_QUERY_CHARS = 128
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
# As BOINC's manager shows a task: id, number of the attempt, number of the result
_BOINC_NAME = re.compile(r"([0-9a-f]{32})(?:_[0-9]{1,9}){1,3}")


@dataclass(frozen=True, slots=True)
class Query:
    """One question to the log."""

    index: int | None  # a place in the log, if a number was asked for
    # else, what entries may mention; any of them is a hit
    mentions: tuple[Mention, ...] = ()


def parse_query(text: str) -> Query:
    """Return what `text` asks for; raises ``STO-L063`` when it asks for nothing known."""
    word = text.strip()
    if len(word) > MAX_QUERY_CHARS:
        raise _unknown()
    if _INDEX.fullmatch(word):
        return Query(int(word))
    if code := parse_mention(MentionKind.CODE, word.upper()):
        return Query(None, (code,))
    if _HEX64.fullmatch(word.lower()):
        kinds = (MentionKind.COMMITMENT, MentionKind.DIGEST, MentionKind.KEY)
        return Query(None, tuple(Mention(kind, word.lower()) for kind in kinds))
    if _WORD.fullmatch(word):
        task = Mention(MentionKind.COMMITMENT, name_task(word))
        return Query(None, (task, Mention(MentionKind.KEY, word.lower())))
    raise _unknown()


def name_task(text: str) -> str:
    """Return the commitment of a task named by its id, its commitment or BOINC's name.

    Raises:
        UsageError: ``STO-L063``.
    """
    if _HEX64.fullmatch(text):
        return text
    if _WORD.fullmatch(text):
        name = _BOINC_NAME.fullmatch(text)
        return task_commitment(name[1] if name else text)
    raise _unknown()


def run_query(
    view: View, query: Query, limit: int, before: int | None = None
) -> list[Entry]:
    """Return the newest entries that answer `query`, newest first, at most `limit`.

    Args:
        view: the log.
        query: the question.
        limit: the most entries.
        before: only places below this, to read on; None for all.
    """
    if query.index is not None:
        entry = view.entry(query.index)
        return [] if entry is None else [entry]
    found = {
        entry.index: entry
        for mention in query.mentions
        for entry in view.find(mention, before=before, limit=limit)
    }
    return [found[index] for index in sorted(found, reverse=True)][:limit]


def _unknown() -> UsageError:
    return UsageError(
        "STO-L063",
        "this is nothing that the log can be searched for",
        hint="give an entry's number, a task's id or its name in BOINC, a digest or "
        "commitment of 64 digits, a code like STO-P034 or a key's role",
    )
