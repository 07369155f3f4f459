"""A round of aggregation whose messages are lost, doubled, late and out of order.

What one node says of itself comes in order, if it comes, as on the stream that it has.

Contributions are counters of names, so a sum shows who is in it and how often. Nodes die,
coordinators are killed and two of them give orders; then it becomes calm, and the round has
to end with each living node's contribution exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import TypeAlias

from bench.traffic.simulation import Holder
from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.ledger import Order
from stoilo.learn.traffic.links import LinkMatrix, Node, Obedience, begin_term

ROOT = "root"
LEASE_S = 30.0
Tally: TypeAlias = Counter[str]


class Careless(Holder[Tally]):
    """The control: adds whatever comes."""

    def take(self, order: Order, value: Tally) -> bool:
        """Add without looking."""
        if order.afresh:
            self._begin()
        self.ids |= order.part
        self.total = value if self.total is None else self.total + value
        return True


class WildRound:
    """One round under disorder.

    Args:
        workers: how many.
        random: of everything that happens.
        kind: of the nodes' ledgers.
        segments: of a vector; a node has a holder of each.
    """

    def __init__(
        self,
        workers: int,
        random: Random,
        kind: type[Holder[Tally]] = Holder,
        segments: int = 1,
    ) -> None:
        self.random, self.now, self.is_wild = random, 0.0, True
        self.workers = [f"w{i}" for i in range(workers)]
        given = {**{n: Counter({n: 1}) for n in self.workers}, ROOT: None}
        self.nodes = {
            n: [kind(n, own) for _ in range(segments)] for n, own in given.items()
        }
        self.agents = {node: Obedience() for node in self.nodes}
        self.coordinators: list[Aggregation] = []
        self.messages: list[Callable[[], None]] = []
        self.words = count()
        self.heard: Counter[tuple[str, Node, int]] = (
            Counter()
        )  # the last of each, by term
        self.start_coordinator()

    def start_coordinator(self) -> None:
        """Start one that knows nothing but what living nodes say; older ones go on."""
        term = begin_term(
            (a.newest for a in self.agents.values()), f"{len(self.coordinators):03}"
        )
        new = Aggregation(
            "r", 1, ROOT, self.workers, LinkMatrix(), term=term, lease_s=LEASE_S
        )
        self.coordinators.append(new)
        for node in self.workers:
            if node not in self.nodes:
                self._carry_out(new, new.gone(node, self.now))
        for node in list(self.nodes):
            # Some agents have not heard of it when the first orders go out.
            self._post(partial(self._report, new, node))

    def _report(self, to: Aggregation, node: Node) -> None:
        if node in self.nodes and self.agents[node].accepts(to.term):
            for segment, held in enumerate(self.nodes[node]):
                self._hears(to, node, segment, next(self.words))
                again = to.ready(node, held.parts(), self.now, segment)
                self._carry_out(to, again)

    def _carry_out(self, by: Aggregation, orders: list[Order]) -> None:
        for order in orders:
            self._post(partial(self._send, by, order))

    def _post(self, message: Callable[[], None]) -> None:
        if not self.is_wild or self.random.random() > 0.15:
            self.messages.append(message)
        if self.is_wild and self.random.random() < 0.1:
            self.messages.append(message)

    def _send(self, by: Aggregation, order: Order) -> None:
        if not self._obeys(order.sender, order):
            return
        holder = self.nodes[order.sender][order.segment]
        value = holder.give(order.part)
        if value is None:
            self._say(by, order, order.sender, by.refused, order.sender, order)
        else:
            self._post(lambda: self._receive(by, order, value))

    def _say(
        self,
        to: Aggregation,
        order: Order,
        node: Node,
        about: Callable[..., list[Order]],
        *what: object,
    ) -> None:
        """Post what a node says of an order, and what it has by now."""
        number = next(self.words)
        parts = self.nodes[node][order.segment].parts()

        def arrive() -> None:
            if node in self.nodes and self._hears(to, node, order.segment, number):
                self._carry_out(to, about(*what, parts, self.now))

        self._post(arrive)

    def _hears(self, to: Aggregation, node: Node, segment: int, number: int) -> bool:
        """Say whether a word is none that is older than one that came."""
        key = to.term.name, node, segment
        is_newer = number >= self.heard[key]
        self.heard[key] = max(number, self.heard[key])
        return is_newer

    def _obeys(self, node: Node, order: Order) -> bool:
        return node in self.nodes and self.agents[node].accepts(order.term)

    def _receive(self, by: Aggregation, order: Order, value: Tally) -> None:
        if not self._obeys(order.receiver, order):
            return
        holder = self.nodes[order.receiver][order.segment]
        node = order.receiver
        if holder.take(order, value):
            self._say(by, order, node, by.finished, order, 1.0)
        else:
            self._say(by, order, node, by.refused, node, order)

    def kill(self, node: Node) -> None:
        """End a node with all it has; the newest coordinator hears of it, sooner or later."""
        self.nodes.pop(node, None)
        newest = self.coordinators[-1]
        self._post(lambda: self._carry_out(newest, newest.gone(node, self.now)))

    def step(self) -> None:
        """Let one message arrive, or time pass."""
        self.now += 1.0
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))()
        for one in self.coordinators:
            self._carry_out(one, one.expire(self.now))

    def settle(self, most: int = 20_000) -> None:
        """Become calm: messages arrive, nodes say again what they have; until it is over."""
        self.is_wild, newest = False, self.coordinators[-1]
        for node in self.workers:
            if node not in self.nodes:
                self._carry_out(newest, newest.gone(node, self.now))
        for node in list(self.nodes):  # a stream that lost a word begins with all again
            self._report(newest, node)
        for _ in range(most):
            for node in [n for n in self.nodes if n not in newest.ledgers[0].parts]:
                self._report(newest, node)
            # Late orders undo what was done, and a round is evened out at its end.
            is_over = newest.done and not self.messages
            self.step()
            if is_over and newest.done and not self.messages:
                return
        raise AssertionError("the round does not end")
