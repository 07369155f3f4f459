"""Look at each leaf and its record, once, in order; remember what is still open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stoilo.audit.format.facts import (
    KeyRecord,
    MentionKind,
    Record,
    WorkunitRecord,
)
from stoilo.audit.format.merkle import Checkpoint, leaf_hash
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf, render_leaf
from stoilo.audit.format.records import Mention, check_record, mentions, record_digest
from stoilo.audit.format.tiles import (
    TILE_WIDTH,
)
from stoilo.audit.monitor.finding import FindingKind, MonitorSettings
from stoilo.audit.monitor.state import TOLD, MonitorState
from stoilo.audit.read.source import LogSource, read_entries
from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a log: what it is measured by, and when."""

    source: LogSource  # hostile in every byte
    policy: LogPolicy  # whose signatures count
    state: MonitorState  # the monitor's memory
    settings: MonitorSettings  # what its owner wants
    now: int  # our clock, s

    @property
    def origin(self) -> str:
        """The log's name, empty before anything was seen of it."""
        return self.state.memory.note.partition(b"\n")[0].decode()


class Inspection:
    """One pass over new leaves, inside of one change of the state."""

    def __init__(
        self,
        look: Look,
        origin: str,  # of the log; records must say the same
        *,
        # nothing was seen before, so ages come from the leaves' own times
        first: bool = False,
    ) -> None:
        self._state = look.state
        self._settings = look.settings
        self._now = look.now
        self._origin = origin
        self._first = first

    def take(self, place: int, entry: bytes, record: bytes | None) -> None:
        """Inspect one leaf; `entry` is proven to be in the log, `record` is hostile."""
        try:
            leaf = parse_leaf(entry)
        except TrustError as error:
            message = f"leaf {place} is of no form known here: {error.message}"
            self._state.alarm(FindingKind.LEAF_UNKNOWN, error.code, message, place)
            return
        if leaf.kind is LeafKind.ADMISSION:
            self._take_admission(place, leaf, leaf_hash(entry))
        elif record is None:
            self._wait_for(place, entry, self._since(leaf))
        else:
            self.take_record(place, leaf, record)
            # A wrong record was told above; the right one may still be shown, and match
            # a watch.
            if record_digest(record) != leaf.digest:
                self._wait_for(place, entry, TOLD)

    def _wait_for(self, place: int, entry: bytes, since: int) -> None:
        """Ask for a leaf's record again, until it is shown: watches may name it."""
        query = "INSERT INTO missing VALUES (?, ?, ?)"
        self._state.connection.execute(query, (place, entry, since))

    def take_record(self, place: int, leaf: Leaf, data: bytes) -> None:
        """Inspect the hostile record of a leaf, once it is there."""
        try:
            record = check_record(leaf, data)
        except TrustError as error:
            message = f"the record shown for leaf {place} is not its own"
            self._state.alarm(
                FindingKind.RECORD_WRONG, error.code, message, place, leaf
            )
            self._match(place, leaf)
            return
        if record.origin != self._origin:
            self._contradict(place, leaf, "is another project's")
        self._match(place, leaf, mentions(record))
        self._take_meaning(place, leaf, record)

    def tell_overdue(self) -> None:
        """Raise the alarm for what was not explained in time, once each."""
        limit = self._now - self._settings.explain_s
        for (place,) in self._overdue("admission", "place", limit):
            message = f"nothing explains the admission at leaf {place}"
            self._state.alarm(FindingKind.UNEXPLAINED, "STO-L134", message, place)
        for place, entry in self._overdue("missing", "place, leaf", limit):
            leaf = parse_leaf(entry)
            message = f"the record of leaf {place} ({leaf.kind}) is not shown"
            self._state.alarm(
                FindingKind.RECORD_MISSING, "STO-L134", message, place, leaf
            )
            self._match(place, leaf)
        connection = self._state.connection
        connection.execute(
            "UPDATE admission SET since = NULL WHERE since <= ?", (limit,)
        )
        query = "UPDATE missing SET since = ? WHERE since <= ?"
        connection.execute(query, (TOLD, limit))

    def _overdue(self, table: str, fields: str, limit: int) -> Iterator[Any]:
        """Yield rows older than `limit`, lowest place first."""
        query = f"SELECT {fields} FROM {table} WHERE since <= ? ORDER BY place"  # noqa: S608 - names of ours
        yield from self._state.connection.execute(query, (limit,))

    def _take_admission(self, place: int, leaf: Leaf, own_hash: bytes) -> None:
        self._state.connection.execute(
            "INSERT INTO admission VALUES (?, ?, ?, ?, 0)",
            (place, bytes.fromhex(leaf.digest), own_hash, self._since(leaf)),
        )
        self._match(place, leaf)

    def _take_meaning(self, place: int, leaf: Leaf, record: Record) -> None:
        """Draw the conclusions that a record's kind asks for."""
        match record:
            case WorkunitRecord():
                self._take_workunit(place, leaf, record)
                self._take_submitter(place, leaf, record)
            case KeyRecord():
                verb = "was born" if record.event == "born" else "died"
                reason = f" ({record.reason})" if record.reason else ""
                message = f"key {record.key} of role {record.role} {verb}{reason}"
                self._state.notice(FindingKind.KEY, message, place, leaf)
            case _:
                pass

    def _take_workunit(self, place: int, leaf: Leaf, record: WorkunitRecord) -> None:
        """Let a record explain its admission, if it tells the truth about it."""
        query = "SELECT digest, leaf, explained FROM admission WHERE place = ?"
        connection = self._state.connection
        row = connection.execute(query, (record.admission,)).fetchone()
        if row is None or not _describes(record, *row[:2]):
            self._contradict(
                place, leaf, f"misdescribes the admission at leaf {record.admission}"
            )
        elif row[2]:
            self._contradict(
                place, leaf, f"explains the admission at leaf {record.admission} again"
            )
        else:
            connection.execute(
                "UPDATE admission SET since = NULL, explained = 1 WHERE place = ?",
                (record.admission,),
            )

    def _take_submitter(self, place: int, leaf: Leaf, record: WorkunitRecord) -> None:
        """Tell about a submitter who is new, or not on the list."""
        if (
            known := self._settings.known
        ) is not None and record.submitter not in known:
            message = f"unknown submitter {record.submitter} at leaf {place}"
            self._state.alarm(
                FindingKind.UNKNOWN_SUBMITTER, "STO-L136", message, place, leaf
            )
        query = "INSERT OR IGNORE INTO submitter VALUES (?)"
        added = self._state.connection.execute(query, (record.submitter,)).rowcount
        if added and known is None:
            message = f"new submitter {record.submitter} at leaf {place}"
            self._state.notice(FindingKind.SUBMITTER, message, place, leaf)

    def _match(
        self, place: int, leaf: Leaf, said: frozenset[Mention] = frozenset()
    ) -> None:
        """Report every watch that a leaf and its record fulfil."""
        named = Mention(MentionKind.DIGEST, leaf.digest)
        for watch in self._settings.watches.find({leaf.kind, named, *said}):
            message = f"leaf {place} ({leaf.kind}) matches {watch}"
            self._state.notice(FindingKind.MATCH, message, place, leaf, watch)

    def _since(self, leaf: Leaf) -> int:
        return min(self._now, leaf.time) if self._first else self._now

    def _contradict(self, place: int, leaf: Leaf, what: str) -> None:
        message = f"the record of leaf {place} {what}"
        self._state.alarm(FindingKind.RECORD_WRONG, "STO-L141", message, place, leaf)


def _describes(record: WorkunitRecord, digest: bytes, own_hash: bytes) -> bool:
    """Whether a record is about the admission with this digest and leaf hash."""
    told = Leaf(
        LeafKind.ADMISSION, Digest(digest.hex()), str(record.epoch), record.admitted_at
    )
    return own_hash.hex() == record.admission_leaf and (
        leaf_hash(render_leaf(told)) == own_hash
    )


_ADMISSION = f"\n{LeafKind.ADMISSION}\n".encode()


def read_leaves(look: Look, target: Checkpoint) -> None:
    """Extend the hashes kept to the verified checkpoint `target`, inspecting each new leaf.

    To be called inside of a change of the state, which an error undoes.

    Raises:
        TrustError: ``STO-L032`` the entries do not lead to the signed root,
            ``STO-L010``, ``STO-L032`` a bundle is malformed or missing.
        UnreachableError: ``STO-L002``.
    """
    source, mirror = look.source, look.state.mirror
    inspection = Inspection(look, target.origin, first=not look.origin)
    for number in range(mirror.size // TILE_WIDTH, -(-target.size // TILE_WIDTH)):
        start = mirror.size
        bundle = read_entries(source.tile, number, target.size)
        entries = bundle[start % TILE_WIDTH :]
        mirror.extend([leaf_hash(entry) for entry in entries])
        records = _read_records(source, number, bundle)[start % TILE_WIDTH :]
        for place, (entry, record) in enumerate(
            zip(entries, records, strict=True), start
        ):
            inspection.take(place, entry, record)
    if mirror.root_at(target.size) != target.root:
        raise TrustError(
            "STO-L032",
            f"the entries shown for {target.size} leaves have another root than signed",
        )


def _read_records(
    source: LogSource, number: int, entries: list[bytes]
) -> list[bytes | None]:
    """Return the records of a tile; none while the server shows rubbish instead."""
    nothing: list[bytes | None] = [None] * len(entries)
    if all(_ADMISSION in entry[:32] for entry in entries):
        return nothing
    try:
        return source.records_of(number, entries)
    except TrustError:
        return nothing
