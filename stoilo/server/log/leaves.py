"""From the outbox into the log: record first, then leaf, then its place; idempotent.

Each batch goes through four durable steps: the records and leaves are fixed in the
outbox, the records are put into the side store, the leaves are appended, their places
noted. A server killed in between repeats from the first step that is missing, with the
same bytes, so no event is lost and none is logged twice.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.audit.format.facts import (
    Record,
    RetentionRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.audit.format.records import (
    leaf_of,
    parse_record,
    record_digest,
    render_record,
)
from stoilo.audit.log.side import ObjectKind, SideObject
from stoilo.core.errors import InternalError
from stoilo.server.db import rows, schema
from stoilo.server.db.bulk import update_many
from stoilo.server.log.outbox import note_fixed
from stoilo.server.log.public_records import OutboxRow, RecordWriter
from stoilo.server.log.refusals import close_refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement

    from stoilo.audit.log.side import SideStore
    from stoilo.server.db.store import Store
    from stoilo.server.log.ports import Log, ProjectFacts


LOGGER = logging.getLogger(__name__)
BATCH = 512
NO_EPOCH = "STO-K024"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """An event whose bytes will never change again."""

    id: int
    leaf: bytes
    data: bytes
    record: Record


class LeafBook:
    """Appends what waits in the outbox."""

    def __init__(
        self,
        store: Store,  # where it waits
        side: SideStore,  # where records and published sources go
        # of the project, at this moment; raises while no epoch is open
        facts: Callable[[], ProjectFacts],
        clock: Callable[[], int],  # seconds since 1970
        interval_s: int = 60,  # refusals are batched over this time
    ) -> None:
        self._store = store
        self._side = side
        self._facts = facts
        self._clock = clock
        self._interval_s = interval_s
        self._closed_at = clock()
        self._appending = threading.Lock()

    def append_waiting(self, log: Log, facts: ProjectFacts | None = None) -> int:
        """Append what waits, one batch; returns how many leaves. Thread-safe.

        `facts` are given by who must not ask for them now: the release while it changes.
        """
        self._close_refusals_now_and_then()
        waits = schema.event.c.log_index.is_(None)
        if not self._rows(waits, 1):
            return 0
        facts = facts or self._facts()  # may wait for the release: before our own lock
        with self._appending:
            waiting = self._rows(waits, BATCH)
            if not waiting:
                return 0
            fixed = self._fix(waiting, log, facts)
            self._store_objects(fixed)
            places = log.append_many([one.leaf for one in fixed], [None] * len(fixed))
            self._note_places(fixed, places)
            return len(fixed)

    def append_all(self, log: Log, facts: ProjectFacts | None = None) -> int:
        """Append until nothing waits; returns how many leaves."""
        total = 0
        while count := self.append_waiting(log, facts):
            total += count
        return total

    def adopt(self, data: bytes) -> None:
        """Store a record whose leaf somebody else appends, and find it later.

        It is readable when this returns. The leaf's epoch is the record's own.
        """
        record, now = parse_record(data), self._clock()
        if not isinstance(record, RevocationRecord):
            raise InternalError("STO-R034", "only a revocation is appended elsewhere")
        self._side.put([SideObject(ObjectKind.RECORD, data)], now)
        key = f"revocation:{record_digest(data)}"
        with self._store.write() as connection:
            leaf = leaf_of(record, data, str(record.epoch))
            note_fixed(connection, key, data, leaf, now)

    def flush_refusals(self) -> None:
        """Close all open batches of refusals now (clean shutdown)."""
        now = self._clock()
        with self._store.write() as connection:
            close_refusals(connection, now + 1, now)

    def refill(self) -> int:
        """Put records that the side store has lost back into it, from the outbox.

        Returns:
            how many leaves' records were looked at; 0 when nothing is missing.
        """
        table = schema.event
        noted = table.c.log_index.is_not(None)
        with self._store.read() as connection:
            query = select(func.count()).select_from(table).where(noted)
            logged = connection.scalar(query) or 0
        if self._side.count(ObjectKind.RECORD) >= logged:
            return 0
        LOGGER.warning("the side store lacks records; they are written anew")
        last = 0
        while batch := self._rows(noted & (table.c.id > last), BATCH):
            records = [bytes(row.record) for row in batch]
            objects = [SideObject(ObjectKind.RECORD, data) for data in records]
            self._side.put(objects, self._clock())
            self._side.index(
                [
                    (row.log_index, parse_record(data))
                    for row, data in zip(batch, records, strict=True)
                ]
            )
            last = batch[-1].id
        return logged

    def _rows(self, where: ColumnElement[bool], limit: int) -> Sequence[OutboxRow]:
        table = schema.event
        query = select(table).where(where).order_by(table.c.id).limit(limit)
        with self._store.read() as connection:
            return connection.execute(query).all()

    def _close_refusals_now_and_then(self) -> None:
        now = self._clock()
        if now - self._closed_at >= self._interval_s:
            with self._store.write() as connection:
                close_refusals(connection, now, now)
            self._closed_at = now

    def _fix(
        self, waiting: Sequence[OutboxRow], log: Log, facts: ProjectFacts
    ) -> list[_Fixed]:
        """Return events with their bytes, stored before the log sees them.

        A repetition after a crash appends the same bytes, also in another epoch.
        """
        fresh = [row for row in waiting if row.leaf is None]
        fixed = {
            row.id: _Fixed(
                row.id, row.leaf, bytes(row.record), parse_record(row.record)
            )
            for row in waiting
            if row.leaf is not None
        }
        if fresh:
            made = self._render(fresh, log, facts)
            self._save([made[row.id] for row in fresh])
            fixed |= made
        return [fixed[row.id] for row in waiting]

    def _render(
        self, fresh: Sequence[OutboxRow], log: Log, facts: ProjectFacts
    ) -> dict[int, _Fixed]:
        late = RecordWriter(self._store, log, facts.origin, fresh)
        made = {}
        for row in fresh:
            record = late.record_of(row)
            data = render_record(record)
            leaf = leaf_of(record, data, str(facts.epoch))
            made[row.id] = _Fixed(row.id, leaf, data, record)
        return made

    def _save(self, fixed: Sequence[_Fixed]) -> None:
        values = [(one.leaf, one.data, one.id) for one in fixed]
        query = "UPDATE event SET leaf = ?, record = ? WHERE id = ?"
        with self._store.write() as connection:
            update_many(connection, query, values)

    def _store_objects(self, fixed: Sequence[_Fixed]) -> None:
        """Make records and the sources that they publish readable, durably."""
        records = [SideObject(ObjectKind.RECORD, one.data) for one in fixed]
        wanted = {
            one.record.source
            for one in fixed
            if isinstance(one.record, WorkunitRecord)
            and one.record.public_source
            and one.record.state == "issued"
        }
        sources: dict[str, bytes] = {}
        if wanted:
            with self._store.read() as connection:
                sources = rows.load_contents(connection, wanted)
        records += [SideObject(ObjectKind.SOURCE, data) for data in sources.values()]
        self._side.put(records, self._clock())
        # What retention commands name, in case they were cut short.
        gone = {
            digest
            for one in fixed
            if isinstance(one.record, RetentionRecord)
            for digest in one.record.published
        }
        if gone - wanted:
            self._side.delete(sorted(gone - wanted), self._clock())

    def _note_places(self, fixed: Sequence[_Fixed], places: Sequence[int]) -> None:
        placed = list(zip(fixed, places, strict=True))
        self._side.index([(place, one.record) for one, place in placed])
        with self._store.write() as connection:
            update_many(
                connection,
                "UPDATE event SET log_index = ? WHERE id = ?",
                [(place, one.id) for one, place in placed],
            )


def log_changes(leaves: LeafBook, log: Log, facts: Callable[[], ProjectFacts]) -> None:
    """Append what waits now; between two epochs it waits for the next one."""
    try:
        leaves.append_all(log, facts())
    except InternalError as error:
        if error.code != NO_EPOCH:
            raise
        LOGGER.warning("changes wait for an epoch to be logged in: %s", error)
