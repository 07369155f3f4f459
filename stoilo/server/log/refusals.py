"""Refused submissions: one batched leaf per researcher and interval (design §1.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select, update

from stoilo.audit.format.facts import CodeCount, RefusalsRecord
from stoilo.audit.format.records import refusals_root
from stoilo.core.digests import Digest, Domain, check_digest, domain_digest
from stoilo.server.db import schema
from stoilo.server.db.batcher import Batcher
from stoilo.server.log.outbox import NO_ORIGIN, note_record
from stoilo.server.log.public_records import submitter_commitment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.db.store import Store


MOST_CODES = 128


class RefusalBook:
    """Remembers refusals durably until `close_refusals` puts them into a leaf."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._notes: Batcher[dict[str, object], None] = Batcher(self._write)

    async def note(self, account_id: int, digest: Digest, code: str) -> None:
        """Store one refusal; returns when it is durable."""
        row = {"account_id": account_id, "digest": digest, "code": code}
        await self._notes.submit(row | {"created_at": self._clock()})

    def _write(self, notes: Sequence[dict[str, object]]) -> list[Exception | None]:
        with self._store.write() as connection:
            connection.execute(insert(schema.refusal), list(notes))
        return [None] * len(notes)


def count_refusals(store: Store, since: int) -> list[tuple[str, int]]:
    """Return how often the gate refused since a time, s, by code, most often first."""
    code, number = schema.refusal.c.code, func.count()
    query = select(code, number).where(schema.refusal.c.created_at >= since)
    with store.read() as connection:
        found = connection.execute(query.group_by(code).order_by(number.desc(), code))
        return [(row[0], row[1]) for row in found]


def refusal_commitment(salt: str, digest: str) -> Digest:
    """Return the salted name of a refused submission, a leaf of its batch's root."""
    parts = (bytes.fromhex(salt), bytes.fromhex(check_digest(digest)))
    return domain_digest(Domain.REFUSALS, *parts)


def close_refusals(connection: Connection, before: int, now: int) -> int:
    """Close the batches of all refusals older than `before` (s); returns how many."""
    table, accounts = schema.refusal, schema.account
    found = connection.execute(
        select(table, accounts.c.salt)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(table.c.batch_id.is_(None), table.c.created_at < before)
        .order_by(table.c.id)
    ).all()
    by_account: dict[int, list[Any]] = {}
    for row in found:
        by_account.setdefault(row.account_id, []).append(row)
    for members in by_account.values():
        _close_batch(connection, members, now)
    return len(by_account)


def _close_batch(connection: Connection, refused: Sequence[Any], now: int) -> None:
    """Write one account's batch, note it for the log and point its refusals to it."""
    start, end = refused[0].created_at, max(one.created_at for one in refused) + 1
    made = connection.execute(
        insert(schema.refusal_batch).values(
            account_id=refused[0].account_id, start=start, end=end
        )
    )
    batch_id = made.inserted_primary_key[0]  # type: ignore[index]  # just made
    connection.execute(
        update(schema.refusal)
        .where(schema.refusal.c.id.in_([one.id for one in refused]))
        .values(batch_id=batch_id)
    )
    salt = refused[0].salt
    names = [refusal_commitment(salt, one.digest) for one in refused]
    codes = Counter(one.code for one in refused).most_common(MOST_CODES)
    record = RefusalsRecord(
        origin=NO_ORIGIN,
        time=now,
        submitter=submitter_commitment(salt),
        start=start,
        end=end,
        count=len(names),
        root=refusals_root(names),
        codes=tuple(CodeCount(code, count) for code, count in sorted(codes)),
    )
    note_record(connection, f"refusals:{batch_id}", record)
