"""What one account may use: its role's quota in the policy, or less by the operator's word.

See `stoilo.policies.policy.Quota`. What an operator allows an account or a group narrows
that, like the policy's own rules: the smaller number holds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import and_, bindparam, exists, func, select

from stoilo.core.errors import PolicyRefusal
from stoilo.server.db import rows, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Select

    from stoilo.policies.policy import Quota


HOUR_S = 3600.0
DAY_S: Final = 86_400


class Allowance(msgspec.Struct, frozen=True):
    """What an operator allows an account or a group; None: what the policy says."""

    open_tasks: int | None = None  # tasks that are not final
    tasks_per_day: int | None = None  # tasks made in the last 24 hours
    blob_bytes: int | None = None  # of uploaded blobs
    share: int | None = None  # weight beside others when volunteers are short; None: 1


@dataclass(frozen=True, slots=True)
class Share:
    """Who shares the volunteers: a group, or an account that is in none."""

    name: str
    weight: int = 1


_FIELDS: Final = Allowance.__struct_fields__


# Made once, as every submission asks: to put one together costs more than to run it.
@cache
def _with_allowances(which: str) -> Select[Any]:
    """Return the query for accounts, each with its own and its group's allowance.

    Of ``:ids``, or of all that have open tasks.
    """
    accounts, task = schema.account, schema.task
    own, group = schema.allowance.alias("own"), schema.allowance.alias("together")
    is_own = and_(own.c.kind == "account", own.c.name == accounts.c.name)
    is_group = and_(group.c.kind == "group", group.c.name == accounts.c.group_name)
    named = accounts.c.id.in_(bindparam("ids", expanding=True))
    has_open = exists().where(
        task.c.account_id == accounts.c.id, task.c.state.in_(rows.OPEN_STATES)
    )
    return (
        select(accounts.c.id, accounts.c.group_name)
        .add_columns(*(one.c[name] for one in (own, group) for name in _FIELDS))
        .outerjoin(own, is_own)
        .outerjoin(group, is_group)
        .where(named if which == "named" else has_open)
    )


def _allowed(
    connection: Connection, *account_ids: int
) -> Iterator[tuple[int, str, Allowance, Allowance]]:
    """Yield account, group, and what each of them is allowed; see `find_shares`."""
    query = _with_allowances("named" if account_ids else "open")
    values = {"ids": account_ids} if account_ids else {}
    middle = len(_FIELDS)
    for account, group, *found in connection.execute(query, values):
        yield account, group, Allowance(*found[:middle]), Allowance(*found[middle:])


def find_shares(connection: Connection, *account_ids: int) -> dict[int, Share]:
    """Return these accounts' shares; of all that have open tasks when none is named."""
    return {
        account: Share(f"group {group}", together.share or 1)
        if group
        else Share(f"account {account}", own.share or 1)
        for account, group, own, together in _allowed(connection, *account_ids)
    }


@dataclass(slots=True)
class Budget:
    """One thing that may be used so often, and how often it is."""

    code: str  # of the refusal
    whose: str  # empty: the caller's own account; else ``group NAME``
    most: int
    used: int
    of: tuple[int, ...]  # the accounts that use it together

    @property
    def what(self) -> str:
        """What it is, for people."""
        return _KINDS[self.code][1]

    def check(self, more: int = 1) -> None:
        """Raise the code when so many more would be too many."""
        if self.used + more > self.most:
            whose = f" of {self.whose}" if self.whose else ""
            text = f"more than {self.most} {self.what}{whose}"
            raise PolicyRefusal(self.code, text, hint=_KINDS[self.code][2])

    def __str__(self) -> str:
        """Return, for people, how much of it is used."""
        whose = self.whose or "your account"
        return f"{whose} has {self.used:,} of {self.most:,} {self.what}"


OPEN, DAY, BYTES = "STO-R004", "STO-R005", "STO-R006"
_KINDS: Final = {  # field of an allowance, in words, what to do
    OPEN: (
        "open_tasks",
        "unfinished tasks",
        "wait for some to finish, cancel some, or use conn.map",
    ),
    DAY: (
        "tasks_per_day",
        "tasks a day",
        "wait, or send many small calls as one with conn.map",
    ),
    BYTES: (
        "blob_bytes",
        "bytes of uploaded blobs",
        "wait for other uploads to end, or ask the operator for more room",
    ),
}


def find_budgets(
    connection: Connection,
    account_id: int,
    quota: Quota,  # of its role
    now: int,
    kinds: Sequence[str] = (OPEN, DAY),
) -> list[Budget]:
    """Return what limits an account and its group, and how much of it is used."""
    [(_, group, own, together)] = _allowed(connection, account_id)
    own = msgspec.structs.replace(
        own,
        open_tasks=_least(quota.running_tasks, own.open_tasks),
        blob_bytes=_least(quota.blob_bytes, own.blob_bytes),
    )
    limited = [("", (account_id,), own)]
    if group and together != Allowance():
        accounts = schema.account
        of_group = select(accounts.c.id).where(accounts.c.group_name == group)
        members = tuple(connection.scalars(of_group))
        limited.append((f"group {group}", members, together))
    count: dict[str, Callable[..., int]] = {
        OPEN: rows.count_tasks,
        DAY: partial(rows.count_tasks, since=now - DAY_S),
        BYTES: _stored_bytes,
    }
    return [
        Budget(kind, whose, most, count[kind](connection, *ids), ids)
        for whose, ids, allowed in limited
        for kind in kinds
        if (most := getattr(allowed, _KINDS[kind][0])) is not None
    ]


def _least(number: int, narrower: int | None) -> int:
    return number if narrower is None else min(number, narrower)


class RateMeter:
    """A token bucket an account, in memory: bursts of an hour's worth. Thread-safe."""

    def __init__(
        self,
        code: str,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        hint: str = "wait a little: some are allowed again each minute",
    ) -> None:
        self._code, self._hint = code, hint
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
                hint=self._hint,
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
            for budget in find_budgets(connection, account_id, quota, 0, (BYTES,)):
                budget.used += sum(self._coming.get(one, 0) for one in budget.of)
                budget.check(size)
            self._coming[account_id] += size

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


def _stored_bytes(connection: Connection, *account_ids: int) -> int:
    """Return the bytes of the blobs that accounts may name; of shared ones for each."""
    used = connection.scalar(
        select(func.sum(schema.blob.c.size))
        .join(schema.blob_grant, schema.blob_grant.c.digest == schema.blob.c.digest)
        .where(schema.blob_grant.c.account_id.in_(account_ids))
    )
    return int(used or 0)
