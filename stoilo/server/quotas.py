"""What one account may use: tasks in flight, submissions a minute, stored blob bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.core.errors import PolicyRefusal
from stoilo.server import rows, schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Quotas", "RateMeter", "check_blob_quota", "check_open_tasks"]


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of one account.

    Attributes:
        open_tasks: tasks not yet final.
        submissions_per_minute: calls of CreateTask, refused ones included.
        blob_bytes: sum of the sizes of the blobs granted to the account.
    """

    open_tasks: int = 20_000
    submissions_per_minute: int = 120_000
    blob_bytes: int = 16 * 2**30


class RateMeter:
    """A token bucket an account, in memory: bursts of a minute's worth. Thread-safe."""

    def __init__(
        self, per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[int, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def check(self, account_id: int) -> None:
        """Count one submission, or raise ``STO-R005``."""
        with self._lock:
            now = self._clock()
            level, seen = self._buckets.get(account_id, (float(self._per_minute), now))
            level = min(
                self._per_minute, level + (now - seen) * self._per_minute / 60.0
            )
            self._buckets[account_id] = (max(level - 1.0, 0.0), now)
        if level < 1.0:
            raise PolicyRefusal(
                "STO-R005",
                f"more than {self._per_minute} submissions a minute",
                hint="wait a minute, or send many small calls as one with conn.map",
            )


def check_open_tasks(
    connection: Connection, account_id: int, adding: int, quotas: Quotas
) -> None:
    """Raise ``STO-R004`` when `adding` more tasks would be too many in flight."""
    if rows.count_open(connection, account_id) + adding > quotas.open_tasks:
        raise PolicyRefusal(
            "STO-R004",
            f"more than {quotas.open_tasks} unfinished tasks",
            hint="wait for some to finish, cancel some, or use conn.map",
        )


def check_blob_quota(
    connection: Connection, account_id: int, size: int, quotas: Quotas
) -> None:
    """Raise ``STO-R006`` when `size` more bytes would exceed the account's blobs."""
    used = connection.scalar(
        select(func.sum(schema.blob.c.size))
        .join(schema.blob_grant, schema.blob_grant.c.digest == schema.blob.c.digest)
        .where(schema.blob_grant.c.account_id == account_id)
    )
    if int(used or 0) + size > quotas.blob_bytes:
        raise PolicyRefusal(
            "STO-R006",
            f"more than {quotas.blob_bytes} bytes of uploaded blobs",
            hint="ask the operator for more room",
        )
