"""A fair queue by account: who is served next, without clock, thread or database.

For whatever is scarce and held for a while: jails of validators, places in front of the
gate, bytes of unfinished uploads. What an account has used lately counts against it, so
that one that asks for much waits behind those that ask for little. Two bounds keep places
free for them whatever the others do: no account holds all places, and neither do all
*busy* accounts together (those that have used more than `Shares.busy_above` lately). Within an
account its groups (tasks, connections) take turns.

Times come in as s of any steady clock; costs are of any one unit. Not thread-safe.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")
# Below that, what an account has used is forgotten, and the account with it
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class Shares:
    """How much may be held at once, and for how long use is remembered."""

    slots: int  # turns at the same time; two at least, or one could not be kept free
    busy_above: float  # an account that has used more than that lately is busy
    half_life_s: float  # after which half of what was used is forgotten, s
    expected: float = 1.0  # what a turn counts while nobody knows what it will cost

    def __post_init__(self) -> None:
        """Refuse shares that could keep nothing free."""
        if self.slots < 2 or self.half_life_s <= 0:  # noqa: PLR2004 - said above
            raise ValueError("shares need two slots and a half-life")


@dataclass(frozen=True, slots=True)
class Turn(Generic[Item]):
    """One item that is being served."""

    account: int  # whose it is
    group: str  # of which of its groups
    item: Item  # what was put


@dataclass(slots=True)
class _Account(Generic[Item]):
    """What waits and runs for one account; `used` is as of `at`."""

    groups: dict[str, deque[Item]] = field(default_factory=dict)
    running: int = 0
    used: float = 0.0
    at: float = 0.0
    served: int = 0  # number of its latest turn


class FairQueue(Generic[Item]):
    """Items that wait, by account and group.

    Args:
        shares: the bounds.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._accounts: dict[int, _Account[Item]] = {}
        self._turns = count(1)
        self._running = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return sum(
            len(items)
            for account in self._accounts.values()
            for items in account.groups.values()
        )

    @property
    def accounts(self) -> int:
        """How many accounts are remembered: they wait, run or have used something."""
        return len(self._accounts)

    def put(self, account: int, group: str, item: Item) -> None:
        """Let an item wait."""
        theirs = self._accounts.setdefault(account, _Account())
        theirs.groups.setdefault(group, deque()).append(item)

    def take(self, now: float) -> Turn[Item] | None:
        """Return whose turn it is, None when nobody waits who may be served now.

        Each turn must come back through `finish`.
        """
        account = self._choose(now)
        if account is None:
            return None
        theirs = self._accounts[account]
        group = next(iter(theirs.groups))
        items = theirs.groups.pop(group)
        item = items.popleft()
        if items:
            theirs.groups[group] = items  # behind the account's other groups
        theirs.served = next(self._turns)
        theirs.running += 1
        self._running += 1
        return Turn(account, group, item)

    def finish(self, turn: Turn[Item], cost: float, now: float) -> None:
        """Give a turn back, with what it has cost."""
        theirs = self._accounts[turn.account]
        theirs.used, theirs.at = self._used(theirs, now) + cost, now
        theirs.running -= 1
        self._running -= 1
        self._forget_idle(now)

    def drop(self, account: int, group: str) -> list[Item]:
        """Take out what waits of a group; returns it. What runs is the caller's affair."""
        theirs = self._accounts.get(account)
        return list(theirs.groups.pop(group, ())) if theirs is not None else []

    def used(self, account: int, now: float) -> float:
        """Return what an account has used lately."""
        theirs = self._accounts.get(account)
        return self._used(theirs, now) if theirs is not None else 0.0

    def is_busy(self, account: int, now: float) -> bool:
        """Say whether an account has used so much lately that others come first."""
        return self.used(account, now) > self._shares.busy_above

    def _used(self, theirs: _Account[Item], now: float) -> float:
        age = max(0.0, now - theirs.at)
        return float(theirs.used * 0.5 ** (age / self._shares.half_life_s))

    def _choose(self, now: float) -> int | None:
        """Return the account to serve: one that is not busy, else the one that used least."""
        if self._running >= self._shares.slots:
            return None
        most = self._shares.slots - 1
        busy = {one for one in self._accounts if self.is_busy(one, now)}
        held = sum(self._accounts[one].running for one in busy)
        ready = [
            one
            for one, theirs in self._accounts.items()
            if theirs.groups
            and theirs.running < most
            and (one not in busy or held < most)
        ]
        return min(
            ready, key=lambda one: self._rank(one, one in busy, now), default=None
        )

    def _rank(self, account: int, busy: bool, now: float) -> tuple[bool, float, int]:
        theirs = self._accounts[account]
        used = self._used(theirs, now) + theirs.running * self._shares.expected
        return busy, used, theirs.served

    def _forget_idle(self, now: float) -> None:
        """Forget accounts that hold and want nothing, and whose use is long ago."""
        idle = [
            one
            for one, theirs in self._accounts.items()
            if not theirs.groups
            and not theirs.running
            and self._used(theirs, now) < NEGLIGIBLE
        ]
        for one in idle:
            del self._accounts[one]


class FairRoom:
    """How much each account holds. Not thread-safe.

    Args:
        size: of the whole room.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._of: Counter[int] = Counter()

    def of(self, account: int) -> int:
        """Return what an account holds."""
        return self._of.get(account, 0)

    def fits(self, account: int, size: int) -> bool:
        """Say whether an account may take `size` more."""
        return self.of(account) + size <= self.size - self.held

    def take(self, account: int, size: int) -> bool:
        """Take `size` for an account if it may; returns whether it did."""
        if not self.fits(account, size):
            return False
        self._of[account] += size
        self.held += size
        return True

    def give(self, account: int, size: int) -> None:
        """Give back what was taken."""
        self.held -= size
        self._of[account] -= size
        if not self._of[account]:
            del self._of[account]
