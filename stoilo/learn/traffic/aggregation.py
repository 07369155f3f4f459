"""One round's sum on its way to the root: whoever is ready adds up with the next one (MWD-CSP).

A vector may travel in *segments*, each added up by itself (`ledger`): a node then sends one
while it receives others, so its line is full in both directions. Of a segment the two that
have waited longest are paired whose lines are free; the root takes what is left over.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from stoilo.learn.traffic.distribution import LEASE_S, TRIES
from stoilo.learn.traffic.ledger import NOTHING, Ids, Ledger, Order
from stoilo.learn.traffic.links import LinkMatrix, Node, Term

ABREAST = 2  # segments that come to a node at a time: no line idles between two orders


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
        self._shared: set[Order] = set()  # came beside others: no measure of a link
        self._failed: dict[Node, int] = {}  # orders in a row
        self._torn, self._given_up = NOTHING, NOTHING
        self._lost: set[frozenset[Node]] = set()  # pairs whose last order failed
        links.advance(iteration)

    @property
    def arrived(self) -> Ids:
        """Which contributions the root has, whole."""
        return frozenset.intersection(*(one.arrived for one in self.ledgers.values()))

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
        if order in self._took and order not in self._shared:
            pair = (order.sender, order.receiver)
            elapsed_s = self._took[order]
            self.links.hear(order, pair, self.size, sent_s=seconds, elapsed_s=elapsed_s)

    def _end(self, order: Order, now: float) -> float | None:
        since = self.open.pop(order, None)
        if since is not None:
            self._took[order] = now - since
        return None if order in self._shared else self._took.get(order)

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
        """End the orders whose lease is over; return the new ones.

        Where all is over, but the root has more of one segment than of another, and what
        is there of the other is in sums with what it has: that is torn, too.
        """
        late = [o for o, since in self.open.items() if now - since >= self.lease_s]
        new = [new for order in late for new in self.lost(order, now)]
        if self.done and (uneven := self._find_uneven()):
            self._given_up |= uneven
            new += self._settle(now)
        return new

    def _find_uneven(self) -> Ids:
        arrived = [one.arrived for one in self.ledgers.values()]
        return NOTHING.union(*arrived) - frozenset.intersection(*arrived)

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
        before, self._torn = self._torn, self._find_torn()
        for segment in segments if before == self._torn and segments else self.ledgers:
            self.ledgers[segment].torn = self._torn
            begun = [order for order in self.open if order.segment == segment]
            self.ledgers[segment].settle(begun)
        return list(self._pair(now))

    def _find_torn(self) -> Ids:
        """Return what is held in some segments, and lost in others with who made it."""
        here = set[Node]().union(*(one.parts for one in self.ledgers.values()))
        absent = frozenset(self.workers) - here
        torn = self._given_up & absent
        while absent:  # what was added to something torn is torn with it
            held = [one.held_without(torn) & absent for one in self.ledgers.values()]
            more = NOTHING.union(*held) - frozenset.intersection(*held)
            if not more:
                break
            torn |= more
        return torn

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
        # Two that failed try all others first: one of them may be well.
        pair = _find_pair(senders, receivers, self._lost)
        if pair is None and not self.open:
            pair = _find_pair(senders, receivers, set())
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
        beside = [other for other in self.open if other.receiver == receiver]
        self._shared.update(beside, [order] if beside else [])
        self.open[order] = now
        one.busy |= {sender, receiver}
        one.queue = [n for n in one.queue if n not in one.busy]
        return order


def _find_pair(
    senders: Sequence[Node], receivers: Sequence[Node], but: set[frozenset[Node]]
) -> tuple[Node, Node] | None:
    """Return the first two that are not one, and none of these pairs."""
    pairs = itertools.product(senders, receivers)
    fits = (p for p in pairs if p[0] != p[1] and frozenset(p) not in but)
    return next(fits, None)
