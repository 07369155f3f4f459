"""Refused submissions: one batched leaf per researcher and interval (design §1.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from stoilo.audit.leaf import batch_refusals, refusals_leaf
from stoilo.core.digests import Digest
from stoilo.server import schema
from stoilo.server.batcher import Batcher
from stoilo.server.statements import submitter_commitment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.store import Store

__all__ = ["RefusalBook", "close_refusals"]


@dataclass(frozen=True, slots=True)
class _Note:
    account_id: int
    digest: Digest
    code: str


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


def close_refusals(connection: Connection, before: int, epoch: int, now: int) -> int:
    """Close the batches of all refusals older than `before` (s); returns how many."""
    table, accounts = schema.refusal, schema.account
    found = connection.execute(
        select(table, accounts.c.salt)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(table.c.batch_id.is_(None), table.c.created_at < before)
        .order_by(table.c.id)
    ).all()
    by_account: dict[tuple[int, str], list[tuple[int, Digest, int]]] = {}
    for row in found:
        refused = (row.id, Digest(row.digest), row.created_at)
        by_account.setdefault((row.account_id, row.salt), []).append(refused)
    for (account_id, salt), members in by_account.items():
        _close_batch(connection, account_id, salt, members, epoch, now)
    return len(by_account)


def _close_batch(
    connection: Connection,
    account_id: int,
    salt: str,
    refused: list[tuple[int, Digest, int]],
    epoch: int,
    now: int,
) -> None:
    """Write one batch with its leaf and point its refusals to it."""
    start, end = refused[0][2], max(time for _, _, time in refused) + 1
    batch = batch_refusals(
        submitter_commitment(salt), start, end, [digest for _, digest, _ in refused]
    )
    made = connection.execute(
        insert(schema.refusal_batch).values(
            account_id=account_id,
            start=start,
            end=end,
            leaf=refusals_leaf(batch, str(epoch), now),
        )
    )
    batch_id = made.inserted_primary_key[0]  # type: ignore[index]  # just made
    connection.execute(
        update(schema.refusal)
        .where(schema.refusal.c.id.in_([number for number, _, _ in refused]))
        .values(batch_id=batch_id)
    )
