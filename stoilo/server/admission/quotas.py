"""What one account may use, by its role in the policy (`stoilo.policies.policy.Quota`)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.core.errors import PolicyRefusal
from stoilo.server.db import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.policies.policy import Quota


HOUR_S = 3600.0


class RateMeter:
    """A token bucket an account, in memory: bursts of an hour's worth. Thread-safe."""

    def __init__(
        self, code: str, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._code = code
        self._what = what
        self._clock = clock
        self._spent: dict[int, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def check(self, account_id: int, per_hour: int, cost: int = 1) -> None:
        """Count `cost` events, or raise the meter's code; 0 only looks."""
        with self._lock:
            spent = self._settle(account_id, per_hour)
            allowed = spent + 1 <= per_hour
            if allowed:
                self._spent[account_id] = spent + cost, self._clock()
        if not allowed:
            raise PolicyRefusal(
                self._code,
                f"more than {per_hour} {self._what} an hour",
                hint="wait, or send many small calls as one with conn.map",
            )

    def left(self, account_id: int, per_hour: int) -> int:
        """Return how many more events would be allowed now."""
        with self._lock:
            return max(0, int(per_hour - self._settle(account_id, per_hour)))

    def charge(self, account_id: int, cost: int) -> None:
        """Count `cost` events that have happened; only the next ones may be refused."""
        with self._lock:
            spent, seen = self._spent.get(account_id, (0.0, self._clock()))
            self._spent[account_id] = (spent + cost, seen)

    def _settle(self, account_id: int, per_hour: int) -> float:
        """Return what an account has spent, less what time has given back."""
        now = self._clock()
        spent, seen = self._spent.get(account_id, (0.0, now))
        spent = max(0.0, spent - (now - seen) * per_hour / HOUR_S)
        self._spent[account_id] = spent, now
        return spent


class RefusalRoom:
    """Refusals set aside before the work that may end in one. For one event loop.

    As many of an account's are under way as it may have refusals left, the others wait:
    else many side by side would all be let in by the one that is left.
    """

    def __init__(self, meter: RateMeter) -> None:
        self._meter = meter
        self._under_way: Counter[int] = Counter()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one(
        self, account_id: int, per_hour: int
    ) -> AsyncIterator[Callable[[], None]]:
        """Wait for room for one refusal; yield what counts it if it comes to that.

        Raises the meter's code when none is left.
        """
        self._meter.check(account_id, per_hour, cost=0)
        while self._under_way[account_id] >= self._meter.left(account_id, per_hour):
            await self._change(account_id)
            self._meter.check(account_id, per_hour, cost=0)
        self._under_way[account_id] += 1
        try:
            yield lambda: self._meter.charge(account_id, 1)
        finally:
            self._under_way[account_id] -= 1
            if not self._under_way[account_id]:
                del self._under_way[account_id]
            for waiter in self._waiting.pop(account_id, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def _change(self, account_id: int) -> None:
        """Wait until something of an account has ended."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account_id, []).append(waiter)
        await waiter


def check_open_tasks(open_tasks: int, quota: Quota) -> None:
    """Raise ``STO-R004`` when one more than `open_tasks` would be too many."""
    if open_tasks + 1 > quota.running_tasks:
        raise PolicyRefusal(
            "STO-R004",
            f"more than {quota.running_tasks} unfinished tasks",
            hint="wait for some to finish, cancel some, or use conn.map",
        )


class BlobRoom:
    """Bytes of blobs an account: what it has, and what is set aside for uploads.

    Room is set aside by the size that an upload declares, before a byte of it comes, so
    that uploads side by side share the quota. What is set aside is in memory only: a
    killed server forgets it together with the halves that it was for. Thread-safe.
    """

    def __init__(self) -> None:
        self._coming: Counter[int] = Counter()
        self._lock = threading.Lock()

    def reserve(
        self, connection: Connection, account_id: int, size: int, quota: Quota
    ) -> None:
        """Set `size` bytes aside, or raise ``STO-R006``; `release` gives them back."""
        with self._lock:
            coming = self._coming[account_id]
            used = _stored_bytes(connection, account_id)
            if used + coming + size > quota.blob_bytes:
                raise PolicyRefusal(
                    "STO-R006",
                    f"more than {quota.blob_bytes} bytes of uploaded blobs",
                    hint="wait for other uploads to end, or ask the operator for more room",
                )
            self._coming[account_id] = coming + size

    def release(self, account_id: int, size: int) -> None:
        """Give back what an upload had set aside, once it is stored or has failed."""
        with self._lock:
            self._coming[account_id] -= size
            if not self._coming[account_id]:
                del self._coming[account_id]

    def coming(self, account_id: int) -> int:
        """Return the bytes that are set aside for an account's uploads."""
        with self._lock:
            return self._coming.get(account_id, 0)


def _stored_bytes(connection: Connection, account_id: int) -> int:
    used = connection.scalar(
        select(func.sum(schema.blob.c.size))
        .join(schema.blob_grant, schema.blob_grant.c.digest == schema.blob.c.digest)
        .where(schema.blob_grant.c.account_id == account_id)
    )
    return int(used or 0)
