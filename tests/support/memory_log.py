"""A log in memory for tests of its readers: honest until a test bends it."""

from __future__ import annotations

from collections.abc import Sequence

from stoilo.audit.format.facts import KeyRecord, Record, WorkunitRecord
from stoilo.audit.format.merkle import (
    Checkpoint,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.policy import render_policy
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.format.records import (
    parse_record,
    record_digest,
    record_leaf,
    render_record,
    task_commitment,
)
from stoilo.audit.format.tiles import ENTRIES, TILE_WIDTH, Tile, encode_bundle
from stoilo.audit.log.seen import PAGE_ROWS, SeenRow, render_seen_row, result_commitment
from stoilo.audit.log.side import ObjectKind
from stoilo.audit.read.source import LogSource
from stoilo.core.digests import content_digest
from stoilo.core.types import Redundancy, RunLimits
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree

__all__ = ["MemoryLogSource"]

_SOME = "0" * 63


class MemoryLogSource(LogSource):
    """A `LogSource` whose content is lists that a test may change.

    Attributes:
        entries: the leaves.
        records: by place; missing ones are not shown.
        note: the checkpoint shown, None for none.
        seen_rows: rows of seen checkpoints.
        reads: names of what was asked for, in order.
    """

    def __init__(self, key: LogKey | None = None) -> None:
        self.key = key or LogKey("log.test/t")
        self.entries: list[bytes] = []
        self.records: dict[int, bytes] = {}
        self.note: bytes | None = None
        self.seen_rows: list[SeenRow] = []
        self.reads: list[str] = []

    # -- what the log's owner does ----------------------------------------------------

    def append(self, entry: bytes, record: bytes | None = None) -> int:
        """Append a leaf and its record; returns its place."""
        self.entries.append(entry)
        if record is not None:
            self.records[len(self.entries) - 1] = record
        return len(self.entries) - 1

    def append_record(self, record: Record) -> int:
        """Append a record and its leaf."""
        data = render_record(record)
        return self.append(record_leaf(data, "1"), data)

    def admit(self, name: str = "s", time: int = 100) -> int:
        """Append an admission's leaf."""
        digest = content_digest(name.encode())
        return self.append(render_leaf(Leaf(LeafKind.ADMISSION, digest, "1", time)))

    def explain(self, place: int, **changes: object) -> int:
        """Append the record of the admission at `place`."""
        fields: dict[str, object] = {
            "origin": self.key.origin,
            "time": 101,
            "state": "issued",
            "admission": place,
            "admission_leaf": leaf_hash(self.entries[place]).hex(),
            "task": task_commitment(f"task-{place}"),
            "attempt": 1,
            "submitter": _SOME + "1",
            "public_source": False,
            "source": _SOME + "2",
            "validator": _SOME + "3",
            "arguments": _SOME + "4",
            "blobs": _SOME + "5",
            "level": "pure",
            "level_digest": _SOME + "6",
            "policy_digest": _SOME + "7",
            "language_digest": _SOME + "8",
            "flavor": _SOME + "9",
            "limits": RunLimits(),
            "redundancy": Redundancy(),
            "epoch": 1,
            "admitted_at": 100,
            "not_after": 200,
        }
        return self.append_record(WorkunitRecord(**(fields | changes)))  # type: ignore[arg-type]  # test data

    def key_event(self, event: str, role: str = "gate", time: int = 50) -> int:
        """Append the birth or death of a key."""
        record = KeyRecord(
            origin=self.key.origin,
            time=time,
            event=event,  # type: ignore[arg-type]  # test data
            role=role,
            key=_SOME + "a",
        )
        return self.append_record(record)

    def sign(self, size: int | None = None) -> bytes:
        """Return a signed checkpoint over the first `size` leaves."""
        size = len(self.entries) if size is None else size
        root = range_root(0, size, self.tree().node)
        return self.key.sign(render_checkpoint(Checkpoint(self.key.origin, size, root)))

    def publish(self) -> bytes:
        """Show a checkpoint over all leaves."""
        self.note = self.sign()
        return self.note

    def see(self, admission: str, note: bytes, copy: int = 0, attempt: int = 1) -> None:
        """Publish what an executor saw; `admission` is a name given to `admit`."""
        self.seen_rows.append(
            SeenRow(
                result=result_commitment(f"{admission}_{attempt}_{copy}"),
                task=task_commitment("task"),
                attempt=attempt,
                admission=content_digest(admission.encode()),
                checkpoint=note.decode(),
            )
        )

    def tree(self) -> MemoryTree:
        """Return the tree over all leaves."""
        return MemoryTree(map(leaf_hash, self.entries))

    # -- what its readers ask -----------------------------------------------------------

    def checkpoint(self) -> bytes | None:
        """Return the checkpoint shown."""
        self.reads.append("checkpoint")
        return self.note

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy."""
        return render_policy(self.key.policy)

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile of the entries there are, None when they are too few."""
        self.reads.append(f"tile {tile.level} {tile.index} {tile.width}")
        start, end = tile.index * TILE_WIDTH, tile.index * TILE_WIDTH + tile.width
        if tile.level == ENTRIES:
            part = self.entries[start:end]
            return encode_bundle(part) if len(part) == tile.width else None
        tree = self.tree()
        try:
            return b"".join(
                tree.node(8 * tile.level, index) for index in range(start, end)
            )
        except IndexError:
            return None

    def _object(self, kind: ObjectKind, digest: str) -> bytes | None:
        """Return the record with this digest; no source is published here."""
        for data in self.records.values():
            if kind is ObjectKind.RECORD and record_digest(data) == digest:
                return data
        return None

    def _read(self, name: str, limit: int) -> bytes | None:
        raise NotImplementedError(name, limit)

    def records_of(self, number: int, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the records of a tile's leaves."""
        self.reads.append(f"records {number}")
        start = number * TILE_WIDTH
        return [self.records.get(start + at) for at in range(len(entries))]

    def seen(self, number: int) -> bytes | None:
        """Return a page of seen checkpoints."""
        rows = self.seen_rows[number * PAGE_ROWS : (number + 1) * PAGE_ROWS]
        return b"".join(map(render_seen_row, rows)) or None

    def parsed(self, place: int) -> Record:
        """Return a record as it was appended."""
        return parse_record(self.records[place])
