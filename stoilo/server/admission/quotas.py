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
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import and_, exists, func, select

from stoilo.core.errors import PolicyRefusal
from stoilo.server.db import rows, schema

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection, Select
    from sqlalchemy.sql.selectable import NamedFromClause

    from stoilo.policies.policy import Quota


HOUR_S = 3600.0
DAY_S: Final = 86_400
_AT_ONCE = "wait for some to finish, cancel some, or use conn.map"
_A_DAY = "wait, or send many small calls as one with conn.map"


class Allowance(msgspec.Struct, frozen=True):
    """What an operator allows an account or a group; None: what the policy says."""

    open_tasks: int | None = None  # tasks that are not final
    tasks_per_day: int | None = None  # tasks made in the last 24 hours
    blob_bytes: int | None = None  # of uploaded blobs
    share: int | None = None  # weight beside others when volunteers are short; None: 1


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the operator allows an account, and its group's members together."""

    group: str  # empty: it is in none
    own: Allowance
    together: Allowance
    members: tuple[int, ...]  # accounts of the group; only where something is counted


@dataclass(frozen=True, slots=True)
class Share:
    """Who shares the volunteers: a group, or an account that is in none."""

    name: str
    weight: int = 1


_FIELDS: Final = Allowance.__struct_fields__


def _with_allowances() -> tuple[Select[Any], NamedFromClause, NamedFromClause]:
    """Return the query for accounts, each with its own and its group's allowance."""
    accounts = schema.account
    own, group = schema.allowance.alias("own"), schema.allowance.alias("together")
    is_own = and_(own.c.kind == "account", own.c.name == accounts.c.name)
    is_group = and_(group.c.kind == "group", group.c.name == accounts.c.group_name)
    query = select(accounts.c.group_name)
    query = query.outerjoin(own, is_own).outerjoin(group, is_group)
    return query, own, group


def find_allowed(connection: Connection, account_id: int) -> Allowed:
    """Return what an account and its group have been allowed."""
    query, *sides = _with_allowances()
    query = query.add_columns(*(one.c[name] for one in sides for name in _FIELDS))
    accounts, middle = schema.account, len(_FIELDS)
    name, *values = connection.execute(query.where(accounts.c.id == account_id)).one()
    together = Allowance(*values[middle:])
    members: tuple[int, ...] = ()
    if name and together != Allowance():
        of_group = select(accounts.c.id).where(accounts.c.group_name == name)
        members = tuple(connection.scalars(of_group))
    return Allowed(name, Allowance(*values[:middle]), together, members)


def find_shares(connection: Connection, *account_ids: int) -> dict[int, Share]:
    """Return these accounts' shares; of all that have open tasks when none is named."""
    query, own, group = _with_allowances()
    accounts, task = schema.account, schema.task
    has_open = exists().where(
        task.c.account_id == accounts.c.id, task.c.state.in_(rows.OPEN_STATES)
    )
    which = accounts.c.id.in_(account_ids) if account_ids else has_open
    columns = (accounts.c.id, own.c.share, group.c.share)
    return {
        account: Share(f"group {name}", together or 1)
        if name
        else Share(f"account {account}", alone or 1)
        for name, account, alone, together in connection.execute(
            query.add_columns(*columns).where(which)
        )
    }


@dataclass(slots=True)
class Budget:
    """One thing that may be used so often, and how often it is."""

    code: str  # of the refusal
    whose: str  # empty: the caller's own account
    what: str
    most: int
    used: int

    def check(self) -> None:
        """Raise the code when one more would be too many."""
        if self.used + 1 > self.most:
            raise PolicyRefusal(
                self.code,
                f"more than {self.most} {self.what}"
                + f" of {self.whose}" * bool(self.whose),
                hint=_AT_ONCE if self.code == "STO-R004" else _A_DAY,
            )

    def __str__(self) -> str:
        """Return, for people, how much of it is used."""
        whose = self.whose or "your account"
        return f"{whose} has {self.used:,} of {self.most:,} {self.what}"


def find_budgets(
    connection: Connection, account_id: int, quota: Quota, now: int
) -> tuple[Budget, ...]:
    """Return what an account and its group have used of what limits new tasks."""
    allowed = find_allowed(connection, account_id)
    open_tasks = least(quota.running_tasks, allowed.own.open_tasks)
    sides = [
        ("", [account_id], msgspec.structs.replace(allowed.own, open_tasks=open_tasks))
    ]
    if allowed.members:
        sides.append((f"group {allowed.group}", [*allowed.members], allowed.together))
    found = []
    for whose, ids, one in sides:
        if one.open_tasks is not None:
            used = rows.count_tasks(connection, *ids)
            found.append(
                Budget("STO-R004", whose, "unfinished tasks", one.open_tasks, used)
            )
        if one.tasks_per_day is not None:
            used = rows.count_tasks(connection, *ids, since=now - DAY_S)
            found.append(
                Budget("STO-R005", whose, "tasks a day", one.tasks_per_day, used)
            )
    return tuple(found)


def find_uses(
    connection: Connection, account_id: int, quota: Quota, now: int
) -> tuple[Budget, ...]:
    """Return the budgets of `find_budgets`, and those of bytes."""
    allowed, code, what = find_allowed(connection, account_id), "STO-R006", "bytes"
    most = least(quota.blob_bytes, allowed.own.blob_bytes)
    used = stored_bytes(connection, account_id)
    found = [Budget(code, "", what, most, used)]
    if allowed.members and (shared := allowed.together.blob_bytes) is not None:
        used = stored_bytes(connection, *allowed.members)
        found.append(Budget(code, f"group {allowed.group}", what, shared, used))
    return (*find_budgets(connection, account_id, quota, now), *found)


def least(number: int, narrower: int | None) -> int:
    """Return the smaller of a policy's number and an allowance, if there is one."""
    return number if narrower is None else min(number, narrower)


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
        allowed = find_allowed(connection, account_id)
        most = least(quota.blob_bytes, allowed.own.blob_bytes)
        with self._lock:
            self._check(connection, [account_id], size, most)
            if allowed.members and allowed.together.blob_bytes is not None:
                whose, most = f" of group {allowed.group}", allowed.together.blob_bytes
                self._check(connection, allowed.members, size, most, whose)
            self._coming[account_id] += size

    def _check(
        self,
        connection: Connection,
        ids: Collection[int],
        size: int,
        most: int,
        whose: str = "",
    ) -> None:
        coming = sum(self._coming.get(one, 0) for one in ids)
        if stored_bytes(connection, *ids) + coming + size > most:
            raise PolicyRefusal(
                "STO-R006",
                f"more than {most} bytes of uploaded blobs{whose}",
                hint="wait for other uploads to end, or ask the operator for more room",
            )

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


def stored_bytes(connection: Connection, *account_ids: int) -> int:
    """Return the bytes of the blobs that accounts may name; of shared ones for each."""
    used = connection.scalar(
        select(func.sum(schema.blob.c.size))
        .join(schema.blob_grant, schema.blob_grant.c.digest == schema.blob.c.digest)
        .where(schema.blob_grant.c.account_id.in_(account_ids))
    )
    return int(used or 0)
