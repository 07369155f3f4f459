"""One round's sum on its way to the root: whoever is ready adds up with the next one (MWD-CSP).

The ledger is kept in sets of contribution ids. A node has its own contribution and the sum
that it has made so far, and keeps both until the root has acknowledged the round. Which of
all these *parts* are on their way to the root is settled anew after each event: the root's
first, then the largest ones that have nothing in common. So a regular step, a death between
receiving and forwarding, a return, and a restarted coordinator are one case. A node sends
exactly the part that it is asked for and adds only what it has not: whatever a coordinator
believes, no contribution is counted twice.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from stoilo.learn.traffic.distribution import LEASE_S, TRIES
from stoilo.learn.traffic.links import LinkMatrix, Node, Term

Ids: TypeAlias = frozenset[str]  # of contributions; a node's own bears its name
NOTHING: Ids = frozenset()


SumT = TypeVar("SumT")  # has +; order-free when exact, as fixed-point integers are


@dataclass(frozen=True, slots=True)
class Order:
    """An instruction to a pair: this part goes from one to the other, who adds it."""

    term: Term
    round: str
    number: int
    sender: Node
    receiver: Node
    part: Ids
    afresh: bool = False  # the receiver begins again from its own contribution


@dataclass(slots=True)
class Holder(Generic[SumT]):
    """What a node has of a round, by its own word; kept until the round is acknowledged.

    Attributes:
        node: whose.
        own: its contribution; None at a root that has none.
    """

    node: Node
    own: SumT | None
    ids: Ids = NOTHING
    total: SumT | None = None
    seen: set[tuple[Term, int]] = field(default_factory=set)  # orders carried out

    def __post_init__(self) -> None:
        """Begin with the own contribution."""
        self._begin()

    def _begin(self) -> None:
        self.ids = NOTHING if self.own is None else frozenset({self.node})
        self.total = self.own

    def parts(self) -> list[Ids]:
        """Return what this node could send."""
        own = [] if self.own is None else [frozenset({self.node})]
        return own if self.ids in own or not self.ids else [self.ids, *own]

    def give(self, part: Ids) -> SumT | None:
        """Return exactly the part that is asked for; None when it is not here."""
        if part == self.ids:
            return self.total
        return self.own if part == {self.node} else None

    def take(self, order: Order, value: SumT) -> bool:
        """Add a part that came; False, and nothing added, when some of it is here already.

        The same order a second time is True and adds nothing.
        """
        key = (order.term, order.number)
        if key in self.seen:
            return True
        ids = {self.node} if order.afresh and self.own is not None else self.ids
        if order.part & ids:
            return False
        if order.afresh:
            self._begin()
        self.ids |= order.part
        self.total = value if self.total is None else operator.add(self.total, value)
        self.seen.add(key)
        return True


class Aggregation:
    """One round: who has what, who is adding to whom, and what has arrived at the root.

    Every event returns the orders that it makes possible; both nodes of an order get it.

    Args:
        name: of the round.
        size: bytes of a part.
        root: where the sum goes.
        workers: whose contributions are expected.
        links: rates, shared with other rounds and versions.
        term: the coordinator's.
        iteration: the round's number, by which rates grow old.
        lease_s: how long an order may take.
    """

    def __init__(
        self,
        name: str,
        size: int,
        root: Node,
        workers: Iterable[Node],
        links: LinkMatrix,
        *,
        term: Term = Term(1),  # noqa: B008 - immutable
        iteration: int = 0,
        lease_s: float = LEASE_S,
    ) -> None:
        self.name, self.size, self.root = name, size, root
        self.workers = [node for node in dict.fromkeys(workers) if node != root]
        self.links, self.term = links, term
        self.parts: dict[Node, list[Ids]] = {}  # of living nodes that are ready
        self.out: set[Node] = set()  # not there any more
        self.open: dict[Order, float] = {}  # since when
        self.lease_s, self._numbers = lease_s, itertools.count()
        self._queue: list[Node] = []  # who waits, longest first
        self._active: dict[Node, Ids] = {}  # the part of each that is to go on
        self._took: dict[Order, float] = {}  # ended ones, s
        self._failed: dict[Node, int] = {}  # orders in a row
        links.advance(iteration)

    @property
    def arrived(self) -> Ids:
        """Which contributions the root has."""
        return max(self.parts.get(self.root, []), key=len, default=NOTHING)

    @property
    def missing(self) -> Ids:
        """Which contributions nobody who is there has: not ready yet, or lost."""
        expected = {*self.workers} | {
            i for p in self.parts.values() for s in p for i in s
        }
        return frozenset(expected).difference(*itertools.chain(*self.parts.values()))

    @property
    def done(self) -> bool:
        """Whether the root has all that living nodes have, and nobody is still expected."""
        late = [n for n in self.workers if n not in self.parts and n not in self.out]
        return self.root in self.parts and not (late or self.open or self._active)

    def ready(self, node: Node, parts: Sequence[Ids], now: float) -> list[Order]:
        """Take what a node has: at its start, back again, or asked after a restart.

        Args:
            node: it; the root is ready with nothing, or with its own contribution.
            parts: all that it could send.
            now: s.
        """
        if node != self.root and node not in self.workers:
            self.workers.append(node)
        self.out.discard(node)
        self.parts[node] = [part for part in parts if part]
        return self._settle(now)

    def finished(
        self, order: Order, seconds: float, parts: Sequence[Ids], now: float
    ) -> list[Order]:
        """Take a receiver's word: the part came in so many s; it has these parts now."""
        elapsed_s = self._end(order, now)
        for node in (order.sender, order.receiver):
            self._failed.pop(node, None)
        if elapsed_s is not None:
            pair = (order.sender, order.receiver)
            self.links.hear(order, pair, self.size, got_s=seconds, elapsed_s=elapsed_s)
        return self.ready(order.receiver, parts, now)

    def sent(self, order: Order, seconds: float) -> None:
        """Take a sender's word on how long it took; the slower of both counts."""
        if order in self._took:
            pair = (order.sender, order.receiver)
            elapsed_s = self._took[order]
            self.links.hear(order, pair, self.size, sent_s=seconds, elapsed_s=elapsed_s)

    def _end(self, order: Order, now: float) -> float | None:
        since = self.open.pop(order, None)
        if since is not None:
            self._took[order] = now - since
        return self._took.get(order)

    def lost(self, order: Order, now: float, *, fault: bool = True) -> list[Order]:
        """End an order that came to nothing; its part is still the sender's.

        Args:
            order: it.
            now: s.
            fault: one of the two ends is to blame; not when the connection broke.
        """
        if order in self.open:
            self._end(order, now)
            del self._took[order]  # its sender's word does not count
            pair = (order.sender, order.receiver)
            self.links.hear(order, pair, self.size, sent_s=self.lease_s)
            if fault:
                self.links.dispute(*pair, "stalled")
            for node in pair:
                self._failed[node] = self._failed.get(node, 0) + 1
                is_named = self.links.is_named(node, "stalled")
                if node != self.root and (is_named or self._failed[node] >= TRIES):
                    self._remove(node)
        return self._settle(now)

    def refused(
        self, node: Node, order: Order, parts: Sequence[Ids], now: float
    ) -> list[Order]:
        """Take a node's word that an order does not fit what it has, and what it has."""
        self._end(order, now)
        return self.ready(node, parts, now)

    def expire(self, now: float) -> list[Order]:
        """End the orders whose lease is over; return the new ones."""
        late = [o for o, since in self.open.items() if now - since >= self.lease_s]
        return [new for order in late for new in self.lost(order, now)]

    def gone(self, node: Node, now: float) -> list[Order]:
        """Go on without a node: what others kept of its sum goes on from them."""
        for order in [o for o in self.open if node in (o.sender, o.receiver)]:
            self._end(order, now)
        self._remove(node)
        return self._settle(now)

    def _remove(self, node: Node) -> None:
        self.out.add(node)
        self.parts.pop(node, None)
        self._failed.pop(node, None)

    def _settle(self, now: float) -> list[Order]:
        """Choose the parts that go on, queue whose they are, and pair who waits."""
        busy = {node for o in self.open for node in (o.sender, o.receiver)}
        taken = set(self.arrived).union(*(o.part for o in self.open))
        for node in busy - {self.root}:
            taken.update(self._active.get(node, NOTHING))
        kept = {n: p for n, p in self._active.items() if n in busy and n in self.parts}
        free = [n for n in self.parts if n not in busy and n != self.root]
        choices = [(part, node) for node in free for part in self.parts[node]]
        for part, node in sorted(choices, key=lambda one: -len(one[0])):
            if node not in kept and not part & taken:
                kept[node] = part
                taken |= part
        self._active = kept
        waiting = {*kept, *self.parts.keys() & {self.root}} - busy
        self._queue = [n for n in self._queue if n in waiting]
        self._queue += [n for n in self.parts if n in waiting and n not in self._queue]
        return self._pair(now)

    def _pair(self, now: float) -> list[Order]:
        """Pair the two that have waited longest, as long as there are two."""
        new = []
        while len(self._queue) > 1:
            one, other = self._queue[:2]
            del self._queue[:2]
            new.append(self._order(*self._direct(one, other), now))
        return new

    def _direct(self, one: Node, other: Node) -> tuple[Node, Node]:
        """Return sender and receiver: the root receives, else the faster way counts."""
        if self.root in (one, other):
            return (other, one) if one == self.root else (one, other)
        there, back = self.links.rate(one, other), self.links.rate(other, one)
        return (one, other) if (there or 0.0) > (back or 0.0) else (other, one)

    def _order(self, sender: Node, receiver: Node, now: float) -> Order:
        part, into = self._active[sender], self._active.get(receiver, NOTHING)
        # What a receiver has made so far is of no use where others have some of it.
        afresh = receiver != self.root and into != self.parts[receiver][0]
        order = Order(
            self.term, self.name, next(self._numbers), sender, receiver, part, afresh
        )
        self.open[order] = now
        return order
