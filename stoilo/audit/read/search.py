"""Find entries by what they say, without believing the one who lists them.

A search reads every leaf, hashes all of them into the tree again and compares it with the
signed root, so what is found is in the log and nothing that matches was left out. (What a
*record* says is bound by its leaf; a withheld record cannot match, and is counted.)
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoilo.audit.format.facts import MentionKind, Record, WorkunitRecord
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import LEAF_FORMAT, Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import (
    Mention,
    check_record,
    mentions,
    parse_mention,
    parse_record,
    task_commitment,
)
from stoilo.audit.format.tiles import TILE_WIDTH
from stoilo.audit.log.database import LogDatabase
from stoilo.audit.read.reader import Entry, LogView, open_log
from stoilo.core.errors import TrustError, UsageError

MAX_FOUND = 10_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DAY_S = 86_400
_SECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: all kinds of condition must hold, one mention of each kind."""

    kinds: frozenset[LeafKind] = frozenset()  # kinds of leaf; empty for any
    # what leaf or record must mention, any one of them; empty for all
    mentions: frozenset[Mention] = frozenset()
    since: int = 0  # POSIX seconds, inclusive
    until: int | None = None  # POSIX seconds, exclusive; None for no end

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """How the bytes of a leaf of one of these kinds begin."""
        return tuple(f"{LEAF_FORMAT}\n{kind}\n".encode() for kind in self.kinds) or (
            b"",
        )

    def fits_leaf(self, leaf: Leaf) -> bool:
        """Whether kind and time fit."""
        return (not self.kinds or leaf.kind in self.kinds) and (
            self.since <= leaf.time and (self.until is None or leaf.time < self.until)
        )

    def fits(self, leaf: Leaf, record: Record | None) -> bool:
        """Whether an entry is one that was looked for, if its leaf fits."""
        named = {Mention(MentionKind.DIGEST, leaf.digest)}
        if record is not None:
            named |= mentions(record)
        return not self.mentions or bool(named & self.mentions)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that was found."""

    index: int  # place in the log
    leaf: Leaf  # what it is
    # what it is about; None where it names none or it is not here
    record: Record | None


@dataclass(slots=True)
class SearchResult:
    """What a search of a whole log found."""

    searched: int = 0  # leaves read, all of the checkpoint's
    without_record: int = 0  # leaves that name a record which is not here
    # lowest index first, at most the limit
    found: list[Found] = field(default_factory=list)
    more: int = 0  # how many more matched


def parse_query(words: Sequence[str]) -> Query:
    """Return the query of ``kind:…``, ``digest:…``, ``since:…`` words.

    A bare 64-digit word is looked for as digest and as commitment, a bare STO code as a
    code. Times are ``YYYY-MM-DD`` (UTC; ``until`` includes the day) or POSIX seconds.

    Raises:
        UsageError: ``STO-L063``.
    """
    kinds: set[LeafKind] = set()
    wanted: set[Mention] = set()
    since, until = 0, None
    for word in words:
        name, colon, value = word.partition(":")
        match name if colon else "":
            case "kind":
                kinds.add(_kind(value))
            case "since":
                since = _time(value)
            case "until":
                until = _time(value, end=True)
            case "":
                wanted |= _bare(word)
            case _:
                wanted.add(_mention(name, value))
    return Query(frozenset(kinds), frozenset(wanted), since, until)


def _kind(value: str) -> LeafKind:
    if value not in set(LeafKind):
        known = ", ".join(kind.value for kind in LeafKind)
        raise _unclear(f"no kind of leaf is called {value[:32]!r}", f"one of {known}")
    return LeafKind(value)


def _mention(name: str, value: str) -> Mention:
    found = parse_mention(name, value)
    if found is None:
        raise _unclear(f"not to be searched for: {name[:32]}:{value[:80]}")
    return found


def _bare(word: str) -> set[Mention]:
    kinds = [MentionKind.DIGEST, MentionKind.COMMITMENT, MentionKind.CODE]
    found = {one for kind in kinds if (one := parse_mention(kind, word))}
    if _DIGEST.fullmatch(word):
        found.add(Mention(MentionKind.KEY, word))
    if not found:
        raise _unclear(f"{word[:80]!r} is neither a digest nor a code")
    return found


def _time(value: str, *, end: bool = False) -> int:
    if _SECONDS.fullmatch(value):
        return int(value)
    try:
        day = dt.datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=dt.UTC)
    except ValueError:
        raise _unclear(f"not a day or POSIX time: {value[:32]!r}") from None
    return int(day.timestamp()) + (_DAY_S if end else 0)


def _unclear(message: str, hint: str = "") -> UsageError:
    return UsageError("STO-L063", message, hint=hint)


def search_log(log: LogView, query: Query, *, limit: int = 100) -> SearchResult:
    """Read a whole log and return what matches, once its tree was seen to be the signed one.

    Memory stays flat in the number of leaves.

    Raises:
        TrustError: ``STO-L032`` when the leaves are not the signed ones; the codes of
            tiles and records.
    """
    result = SearchResult()
    for start, leaves in log.bundles():
        result.searched += len(leaves)
        for entry in _matching(log, query, start, leaves, result):
            if len(result.found) < min(limit, MAX_FOUND):
                result.found.append(entry)
            else:
                result.more += 1
    return result


def _matching(
    log: LogView, query: Query, start: int, leaves: list[bytes], result: SearchResult
) -> Iterator[Found]:
    """Yield the entries of one bundle that fit; fetches its records once, if needed."""
    records: list[bytes | None] | None = None
    for place, data in enumerate(leaves):
        if not data.startswith(query.prefixes):
            continue
        try:
            leaf = parse_leaf(data)
        except TrustError:
            continue
        if not query.fits_leaf(leaf):
            continue
        record: Record | None = None
        if leaf.kind is not LeafKind.ADMISSION:
            if records is None:
                records = log.source.records_of(start // TILE_WIDTH, leaves)
            text = records[place]
            record = None if text is None else check_record(leaf, text)
            result.without_record += record is None
        if query.fits(leaf, record):
            yield Found(start + place, leaf, record)


def is_explained_by(record: Record | None, index: int, data: bytes) -> bool:
    """Whether `record` is the workunit record of the admission `data` at `index`."""
    return (
        isinstance(record, WorkunitRecord)
        and record.admission == index
        and record.admission_leaf == leaf_hash(data).hex()
    )


_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_COMMITMENT = re.compile(r"[0-9a-f]{64}")
_EXPLAINED_WITHIN = 8
"""Bundles, the admission's own first, in which its record is looked for."""


def prove_leaf(
    location: str | Path, name: str, policy: LogPolicy | None = None
) -> Entry:
    """Return a task's leaf with its proof (newest admission first) or of a plain index.

    The leaf itself travels in the proof's ``extra``.

    Raises:
        UsageError: ``STO-L001`` not a log, ``STO-L005`` no policy, ``STO-L023`` no such
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
    return Entry(index, leaf, None, log.signed, proof=proof)


def find_entries(
    log: LogView,
    # a task's id or its public commitment (64 hex digits), or an index. Below a data
    # directory the server's own labels answer; elsewhere every record is read.
    name: str,
) -> list[int]:
    """Return the places that a name means, lowest first, never none.

    Raises:
        UsageError: ``STO-L023`` when the log has none.
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
        raise UsageError("STO-L023", f"the log has no leaf for {name[:80]!r}")
    return sorted(places)


def _labelled(log: LogView, name: str) -> dict[int, bytes]:
    """Return the leaves that a data directory's own database labels so, by place."""
    paths = log.source.paths
    if paths is None or not paths.database.exists():
        return {}
    with contextlib.closing(LogDatabase(paths.database, read_only=True)) as rows:
        places = rows.find_label(name)
        return {at: leaf for at in places for leaf in rows.leaves(at, at + 1)}


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
        leaves = log.bundle(number)
        for place, text in enumerate(log.source.records_of(number, leaves)):
            at = number * TILE_WIDTH + place
            # The record is hostile until its own leaf was proven.
            if text and at > index and is_explained_by(parse_record(text), index, data):
                record = log.entry(at).record
                if record is not None and is_explained_by(record, index, data):
                    return at, record
    return None
