"""Refused submissions: one batched leaf per researcher and interval (design §1.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

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


@dataclass(frozen=True, slots=True)
class _Note:
    account_id: int
    digest: Digest
    code: str


@dataclass(frozen=True, slots=True)
class _Refusal:
    id: int
    digest: Digest
    code: str
    time: int


class RefusalBook:
    """Remembers refusals durably until `close_refusals` puts them into a leaf."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._notes: Batcher[_Note, None] = Batcher(self._write)

    async def note(self, account_id: int, digest: Digest, code: str) -> None:
        """Store one refusal; returns when it is durable."""
        await self._notes.submit(_Note(account_id, digest, code))

    def _write(self, notes: Sequence[_Note]) -> list[Exception | None]:
        now = self._clock()
        with self._store.write() as connection:
            connection.execute(
                insert(schema.refusal),
                [
                    {
                        "account_id": note.account_id,
                        "digest": note.digest,
                        "code": note.code,
                        "created_at": now,
                    }
                    for note in notes
                ],
            )
        return [None] * len(notes)


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
    by_account: dict[tuple[int, str], list[_Refusal]] = {}
    for row in found:
        refused = _Refusal(row.id, Digest(row.digest), row.code, row.created_at)
        by_account.setdefault((row.account_id, row.salt), []).append(refused)
    for (account_id, salt), members in by_account.items():
        _close_batch(connection, account_id, salt, members, now)
    return len(by_account)


def _close_batch(
    connection: Connection,
    account_id: int,
    salt: str,
    refused: list[_Refusal],
    now: int,
) -> None:
    """Write one batch, note it for the log and point its refusals to it."""
    start, end = refused[0].time, max(one.time for one in refused) + 1
    made = connection.execute(
        insert(schema.refusal_batch).values(account_id=account_id, start=start, end=end)
    )
    batch_id = made.inserted_primary_key[0]  # type: ignore[index]  # just made
    connection.execute(
        update(schema.refusal)
        .where(schema.refusal.c.id.in_([one.id for one in refused]))
        .values(batch_id=batch_id)
    )
    note_record(
        connection,
        f"refusals:{batch_id}",
        _batch_record(salt, start, end, refused, now),
    )


def _batch_record(
    salt: str, start: int, end: int, refused: list[_Refusal], now: int
) -> RefusalsRecord:
    """Return the public record of a batch."""
    names = [refusal_commitment(salt, one.digest) for one in refused]
    codes = Counter(one.code for one in refused).most_common(MOST_CODES)
    return RefusalsRecord(
        origin=NO_ORIGIN,
        time=now,
        submitter=submitter_commitment(salt),
        start=start,
        end=end,
        count=len(names),
        root=refusals_root(names),
        codes=tuple(CodeCount(code, count) for code, count in sorted(codes)),
    )
