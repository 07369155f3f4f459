"""What a coordinator has under way: its nodes, the orders that it gave, their leases."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field

from stoilo.learn.store.place import ShardPlace
from stoilo.learn.traffic import ledger
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.distribution import Transfer as Hop

SLOWEST = 250_000  # bytes/s: a transfer that is slower loses its lease
_LEAST_LEASE_S = 15.0
Transfer = Hop | ledger.Order


@dataclass(eq=False)
class Node:
    """A node that is there."""

    name: str
    place: ShardPlace
    url: str  # where it serves volunteers, empty: nowhere
    orders: queue.SimpleQueue[w.Order] = field(default_factory=queue.SimpleQueue)


@dataclass(frozen=True)
class UnderWay:
    """An order that was given."""

    transfer: Transfer
    item: w.Item  # that is fetched
    since: float  # s, monotonic

    def fits(self, name: str, item: w.Item) -> bool:
        """Say whether this is what it was for: the item, or a sum that it went into."""
        is_in = {*self.item.ids} < {*item.ids} and self.item.place == item.place
        return name == self.transfer.receiver and (item == self.item or is_in)


def lease_s(size: int) -> float:
    """Return how long a transfer of so many bytes may take, s."""
    return _LEAST_LEASE_S + size / SLOWEST
