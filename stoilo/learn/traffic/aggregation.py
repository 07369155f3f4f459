"""One round's sum on its way to the root: whoever is ready adds up with the next one (MWD-CSP).

A vector may travel in *segments*, each added up by itself: a node then sends one segment while
it receives others, so its line is full in both directions. Of a segment the two that have
waited longest are paired whose lines are free; the root takes what is left over.

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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from stoilo.learn.traffic.distribution import LEASE_S, TRIES
from stoilo.learn.traffic.links import LinkMatrix, Node, Term

Ids: TypeAlias = frozenset[str]  # of contributions; a node's own bears its name
NOTHING: Ids = frozenset()
ABREAST = 2  # segments that come to a node at a time: no line idles between two orders


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
    segment: int = 0


@dataclass(slots=True)
class Holder(Generic[SumT]):
    """What a node has of a segment, by its own word; kept until the round is acknowledged.

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


@dataclass(slots=True)
class Ledger:
    """One segment: what living nodes have of it, and which of that goes on.

    Attributes:
        root: where it goes.
        parts: of living nodes that are ready.
        active: the part of each that is to go on.
        queue: who waits, longest first; the root is none of them.
        busy: who sends or receives it.
    """

    root: Node
    parts: dict[Node, list[Ids]] = field(default_factory=dict)
    active: dict[Node, Ids] = field(default_factory=dict)
    queue: list[Node] = field(default_factory=list)
    busy: set[Node] = field(default_factory=set)

    @property
    def arrived(self) -> Ids:
        """Which contributions the root has."""
        return max(self.parts.get(self.root, []), key=len, default=NOTHING)

    def find_missing(self, workers: Iterable[Node]) -> Ids:
        """Return which contributions nobody who is there has."""
        return frozenset(workers).difference(*itertools.chain(*self.parts.values()))

    def settle(self, begun: Sequence[Order]) -> None:
        """Choose the parts that go on beside those on their way; queue whose they are."""
        self.busy = {node for o in begun for node in (o.sender, o.receiver)}
        taken = set(self.arrived).union(*(o.part for o in begun))
        for node in self.busy - {self.root}:
            taken.update(self.active.get(node, NOTHING))
        kept = {
            n: p for n, p in self.active.items() if n in self.busy and n in self.parts
        }
        free = [n for n in self.parts if n not in self.busy and n != self.root]
        choices = [(part, node) for node in free for part in self.parts[node]]
        for part, node in sorted(choices, key=lambda one: -len(one[0])):
            if node not in kept and not part & taken:
                kept[node] = part
                taken |= part
        self.active = kept
        waiting = dict.fromkeys(n for n in self.queue if n in kept)
        waiting |= dict.fromkeys(n for n in self.parts if n in kept)
        self.queue = [n for n in waiting if n not in self.busy]

    def is_useless(self, node: Node) -> bool:
        """Say whether others have some of the sum that a node has made so far."""
        made = self.parts[node][0] if self.parts[node] else NOTHING
        return node != self.root and self.active.get(node, NOTHING) != made


class Aggregation:
    """One round: who has what, who is adding to whom, and what has arrived at the root.

    Every event returns the orders that it makes possible; both nodes of an order get it.

    Args:
        name: of the round.
        size: bytes of a part, of one segment.
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
        self.ledgers = {0: Ledger(root)}  # by segment; more as one hears of them
        self.out: set[Node] = set()  # not there any more
        self.open: dict[Order, float] = {}  # since when
        self.lease_s, self._numbers = lease_s, itertools.count()
        self._took: dict[Order, float] = {}  # ended ones, s
        self._failed: dict[Node, int] = {}  # orders in a row
        self._lost: set[frozenset[Node]] = set()  # pairs whose last order failed
        links.advance(iteration)

    @property
    def arrived(self) -> Ids:
        """Which contributions the root has, whole."""
        return frozenset.intersection(*(one.arrived for one in self.ledgers.values()))

    @property
    def missing(self) -> Ids:
        """Which contributions nobody who is there has: not ready yet, or lost."""
        found = (one.find_missing(self.workers) for one in self.ledgers.values())
        return NOTHING.union(*found)

    @property
    def done(self) -> bool:
        """Whether the root has all that living nodes have, and nobody is still expected."""
        expected = {self.root, *self.workers}.difference(self.out - {self.root})
        return not self.open and not any(
            expected.difference(one.parts) or one.active
            for one in self.ledgers.values()
        )

    def ready(
        self, node: Node, parts: Sequence[Ids], now: float, segment: int = 0
    ) -> list[Order]:
        """Take what a node has: at its start, back again, or asked after a restart.

        Args:
            node: it; the root is ready with nothing, or with its own contribution.
            parts: all that it could send.
            now: s.
            segment: of which these are parts.
        """
        if node != self.root and node not in self.workers:
            self.workers.append(node)
        self.out.discard(node)
        if segment not in self.ledgers:
            here = [n for n in self.ledgers[0].parts if n == self.root]
            self.ledgers[segment] = Ledger(self.root, {n: [] for n in here})
        if node == self.root:
            for one in self.ledgers.values():
                one.parts.setdefault(node, [])
        self.ledgers[segment].parts[node] = [part for part in parts if part]
        return self._settle(now, segment)

    def finished(
        self, order: Order, seconds: float, parts: Sequence[Ids], now: float
    ) -> list[Order]:
        """Take a receiver's word: the part came in so many s; it has these parts now."""
        elapsed_s = self._end(order, now)
        for node in (order.sender, order.receiver):
            self._failed.pop(node, None)
        self._lost.discard(frozenset((order.sender, order.receiver)))
        if elapsed_s is not None:
            pair = (order.sender, order.receiver)
            self.links.hear(order, pair, self.size, got_s=seconds, elapsed_s=elapsed_s)
        return self.ready(order.receiver, parts, now, order.segment)

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
            self._lost.add(frozenset(pair))
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
        return self.ready(node, parts, now, order.segment)

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
        for one in self.ledgers.values():
            one.parts.pop(node, None)
        self._failed.pop(node, None)

    def _settle(self, now: float, *segments: int) -> list[Order]:
        """Choose anew what goes on, of all segments unless some are named; pair who waits."""
        for segment in segments or self.ledgers:
            begun = [order for order in self.open if order.segment == segment]
            self.ledgers[segment].settle(begun)
        return list(self._pair(now))

    def _pair(self, now: float) -> Iterator[Order]:
        """Pair whoever waits, the first segments first, for as long as lines are free."""
        sends = Counter(order.sender for order in self.open)
        takes = Counter(order.receiver for order in self.open)
        for segment, one in sorted(self.ledgers.items()):
            while (pair := self._find(one, sends, takes)) is not None:
                yield self._order(segment, *pair, now)
                sends[pair[0]] += 1
                takes[pair[1]] += 1

    def _find(
        self, one: Ledger, sends: Counter[Node], takes: Counter[Node]
    ) -> tuple[Node, Node] | None:
        """Return who has waited longest and can send, and who receives; the root is last."""
        senders = [n for n in one.queue if not sends[n]]
        here = [] if self.root in one.busy else [n for n in one.parts if n == self.root]
        receivers = [n for n in (*one.queue, *here) if takes[n] < ABREAST]
        pairs = [(n, to) for n in senders for to in receivers if n != to]
        # Two that failed try all others first: one of them may be well.
        untried = (pair for pair in pairs if frozenset(pair) not in self._lost)
        pair = next(untried, None if self.open or not pairs else pairs[0])
        if pair and pair[0] in receivers and pair[1] in senders:
            there, back = (self.links.rate(*way) or 0.0 for way in (pair, pair[::-1]))
            return pair if there >= back else pair[::-1]
        return pair

    def _order(self, segment: int, sender: Node, receiver: Node, now: float) -> Order:
        one = self.ledgers[segment]
        # What a receiver has made so far is of no use where others have some of it.
        order = Order(
            *(self.term, self.name, next(self._numbers), sender, receiver),
            *(one.active[sender], one.is_useless(receiver), segment),
        )
        self.open[order] = now
        one.busy |= {sender, receiver}
        one.queue = [n for n in one.queue if n not in one.busy]
        return order
