"""From an event of the outbox to its public record.

Some events carry their record with them; those of workunits and outcomes are many and
name a row only, so that the transactions which make them stay short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import select, update

from stoilo.core.digests import content_digest
from stoilo.server.db import rows, schema
from stoilo.server.log.disclosure import (
    ResultPayload,
    outcome_record,
    read_sealed,
    review_commitment,
    workunit_record,
)
from stoilo.server.log.outbox import EventKind, read_draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from stoilo.audit.format.record import Record
    from stoilo.server.db.records import AttemptRow
    from stoilo.server.db.store import Store
    from stoilo.server.log.ports import Log

__all__ = ["OutboxRow", "RecordWriter"]

_NO_REVIEWS = b'"reviewers":[]'

OutboxRow = Any
"""A row of `schema.event`; SQLAlchemy's rows have no better type."""


class RecordWriter:
    """Makes the records of one batch of events; reads all rows they need at once.

    Args:
        store: where the rows are.
        log: knows the places of leaves that a killed server could not note.
        origin: of project and log.
        events: rows of the outbox.
    """

    def __init__(
        self, store: Store, log: Log, origin: str, events: Sequence[OutboxRow]
    ) -> None:
        self._store = store
        self._log = log
        self._origin = origin
        names = [
            event.key.partition(":")[2]
            for event in events
            if event.kind in {EventKind.ISSUED, EventKind.WITHDRAWN}
        ]
        done = [
            event.key.partition(":")[2]
            for event in events
            if event.kind == EventKind.OUTCOME
        ]
        with store.read() as connection:
            self._attempts = rows.attempts_named(connection, names)
            self._payloads = _load_payloads(connection, done)
            self._places = _load_places(connection, list(self._payloads.values()))
            self._reviews = _load_reviews(
                connection, [attempt for attempt, _ in self._attempts.values()]
            )

    def record_of(self, event: OutboxRow) -> Record:
        """Return the record of one event."""
        name = event.key.partition(":")[2]
        match EventKind(event.kind):
            case EventKind.RECORD:
                return read_draft(event.record, self._origin)
            case EventKind.OUTCOME:
                payload = self._payloads[name]
                place = self._places.get((payload.task_id, payload.attempt))
                return outcome_record(payload, place, self._origin)
            case kind:
                attempt, codes = self._attempts[name]
                return workunit_record(
                    self._placed(attempt),
                    codes,
                    event.created_at,
                    issued=kind is EventKind.ISSUED,
                    reviews=self._reviews,
                )

    def _placed(self, attempt: AttemptRow) -> AttemptRow:
        """Return the attempt with the place of its leaf.

        A server that was killed between appending and noting the place knows it from
        the log only, which keeps a leaf that it has; so one more attempt is logged than
        admitted at the most.
        """
        if attempt.log_index is not None:
            return attempt
        [place] = self._log.append_many([attempt.leaf or b""], [attempt.task_id])
        table = schema.attempt
        query = update(table).where(
            table.c.task_id == attempt.task_id, table.c.number == attempt.number
        )
        with self._store.write() as connection:
            connection.execute(query.values(log_index=place))
        return rows.replace_attempt(attempt, log_index=place)


def _load_payloads(
    connection: Connection, task_ids: Sequence[str]
) -> dict[str, ResultPayload]:
    if not task_ids:
        return {}
    table = schema.outcome
    query = select(table.c.task_id, table.c.payload).where(
        table.c.task_id.in_(list(task_ids))
    )
    return {
        row.task_id: msgspec.json.decode(row.payload, type=ResultPayload)
        for row in connection.execute(query)
    }


def _load_places(
    connection: Connection, payloads: Sequence[ResultPayload]
) -> dict[tuple[str, int], int | None]:
    """Return the places of admissions by task and attempt."""
    if not payloads:
        return {}
    table = schema.attempt
    found = connection.execute(
        select(table.c.task_id, table.c.number, table.c.log_index).where(
            table.c.task_id.in_([one.task_id for one in payloads])
        )
    ).all()
    return {(row.task_id, row.number): row.log_index for row in found}


def _load_reviews(
    connection: Connection, attempts: Iterable[AttemptRow]
) -> dict[str, str]:
    """Return digest → commitment of the reviews that sealed statements carry."""
    digests = {
        content_digest(text.encode())
        for attempt in attempts
        if attempt.statement and _NO_REVIEWS not in attempt.statement
        for text in read_sealed(attempt.statement).reviewers
    }
    if not digests:
        return {}
    table, accounts = schema.review, schema.account
    found = connection.execute(
        select(table.c.digest, table.c.envelope, accounts.c.salt)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(table.c.digest.in_(digests))
    )
    return {
        row.digest: review_commitment(row.salt, bytes(row.envelope)) for row in found
    }
