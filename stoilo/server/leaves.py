"""Results and refusals on their way into the log; idempotent by the leaf's digest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, update

from stoilo.audit.leaf import Leaf, LeafKind, render_leaf
from stoilo.core.digests import Digest
from stoilo.core.dsse import pae
from stoilo.server import schema
from stoilo.server.refusals import close_refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Row

    from stoilo.server.ports import Log
    from stoilo.server.store import Store

__all__ = ["RESULT_PAYLOAD", "LeafBook", "result_leaf"]

RESULT_PAYLOAD = "application/vnd.stoilo.result+json"
BATCH = 512


def result_leaf(payload: bytes, epoch: int, now: int) -> bytes:
    """Return the public leaf of a task's outcome; the payload is salted and private."""
    digest = Digest(hashlib.sha256(pae(RESULT_PAYLOAD, payload)).hexdigest())
    return render_leaf(Leaf(LeafKind.RESULT, digest, str(epoch), now))


class LeafBook:
    """Leaves of outcomes and refusals that the log does not hold yet.

    Args:
        store: where they wait.
        epoch: the current epoch's number.
        clock: seconds since 1970.
        interval_s: refusals are batched over this time.
    """

    def __init__(
        self,
        store: Store,
        epoch: Callable[[], int],
        clock: Callable[[], int],
        interval_s: int = 60,
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._clock = clock
        self._interval_s = interval_s
        self._closed_at = clock()

    def append_waiting(self, log: Log) -> int:
        """Append what waits; returns how many leaves."""
        return self._append_results(log) + self._append_refusals(log)

    def _append_results(self, log: Log) -> int:
        table = schema.outcome
        with self._store.read() as connection:
            waiting = connection.execute(
                select(
                    table.c.task_id, table.c.payload, table.c.leaf, table.c.created_at
                )
                .where(table.c.logged.is_(False))
                .limit(BATCH)
            ).all()
        if not waiting:
            return 0
        leaves = self._fix_results(waiting)
        indices = log.append_many(list(leaves.values()), [None] * len(leaves))
        query = (
            update(table)
            .where(table.c.task_id == bindparam("of_task"))
            .values(log_index=bindparam("at"), logged=True)
        )
        with self._store.write() as connection:
            connection.execute(
                query,
                [
                    {"of_task": task_id, "at": index}
                    for task_id, index in zip(leaves, indices, strict=True)
                ],
            )
        return len(waiting)

    def _fix_results(
        self, waiting: Sequence[Row[*tuple[Any, ...]]]
    ) -> dict[str, bytes]:
        """Return task id → leaf, stored before the log sees it.

        A repetition after a crash appends the same bytes, also in another epoch.
        """
        fixed = {row.task_id: row.leaf for row in waiting}
        epoch = self._epoch() if None in fixed.values() else 0
        fresh = {
            row.task_id: result_leaf(bytes(row.payload), epoch, row.created_at)
            for row in waiting
            if row.leaf is None
        }
        table = schema.outcome
        query = (
            update(table)
            .where(table.c.task_id == bindparam("of_task"))
            .values(leaf=bindparam("new_leaf"))
        )
        if fresh:
            with self._store.write() as connection:
                values = [
                    {"of_task": task_id, "new_leaf": leaf}
                    for task_id, leaf in fresh.items()
                ]
                connection.execute(query, values)
        return {task_id: bytes(leaf) for task_id, leaf in (fixed | fresh).items()}

    def flush_refusals(self) -> None:
        """Close all open batches of refusals now (clean shutdown)."""
        now = self._clock()
        with self._store.write() as connection:
            close_refusals(connection, now + 1, self._epoch(), now)

    def _append_refusals(self, log: Log) -> int:
        now = self._clock()
        if now - self._closed_at >= self._interval_s:
            with self._store.write() as connection:
                close_refusals(connection, now, self._epoch(), now)
            self._closed_at = now
        table = schema.refusal_batch
        with self._store.read() as connection:
            waiting = connection.execute(
                select(table.c.id, table.c.leaf)
                .where(table.c.log_index.is_(None))
                .limit(BATCH)
            ).all()
        if not waiting:
            return 0
        leaves = [bytes(row.leaf) for row in waiting]
        indices = log.append_many(leaves, [None] * len(leaves))
        query = (
            update(table)
            .where(table.c.id == bindparam("of_batch"))
            .values(log_index=bindparam("at"))
        )
        with self._store.write() as connection:
            connection.execute(
                query,
                [
                    {"of_batch": row.id, "at": index}
                    for row, index in zip(waiting, indices, strict=True)
                ],
            )
        return len(waiting)
