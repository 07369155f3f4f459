"""A network without wires: flows that share access lines fairly, on a virtual clock.

Flows are fluid and max-min fair: none can go faster unless a slower one goes slower still.
Any schedule of this folder plays on it, with nodes that lie, stall or die; agents do what
the live ones do, only messages cost nothing but `latency_s`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bench.traffic.trees import Access
from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.distribution import Distribution, Give, Sent, Transfer
from stoilo.learn.traffic.ledger import NOTHING, Ids, Order
from stoilo.learn.traffic.links import Node, Term

Then = Callable[[], None]
SumT = TypeVar("SumT")  # has +; order-free when exact, as fixed-point integers are


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

    @property
    def _first(self) -> Ids:
        return NOTHING if self.own is None else frozenset({self.node})

    def _begin(self) -> None:
        self.ids, self.total = self._first, self.own

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
        if order.part & (self._first if order.afresh else self.ids):
            return False
        if order.afresh:
            self._begin()
        self.ids |= order.part
        self.total = value if self.total is None else operator.add(self.total, value)
        self.seen.add(key)
        return True


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way.

    Attributes:
        what: whose ends the flow has.
        left: bytes.
        then: called at its end.
        begun: the first byte is on its way.
        rate: bytes/s, now.
    """

    what: Transfer | Order
    left: float
    then: Then
    begun: bool = False
    rate: float = 0.0


class Network:
    """Nodes with access lines, and what flows between them.

    Args:
        access: of each node; may be changed while things flow (`change`).
        latency_s: from an instruction to the first byte.
    """

    def __init__(self, access: Mapping[Node, Access], latency_s: float = 0.0) -> None:
        self.access, self.latency_s = dict(access), latency_s
        self.limits: dict[tuple[Node, Node], float] = {}  # of single ways, bytes/s
        self.now = 0.0
        self.flows: list[Flow] = []
        self._later: list[tuple[float, int, Then]] = []
        self._numbers = itertools.count()

    def at(self, time: float, then: Then) -> None:
        """Call something when the clock gets there."""
        heapq.heappush(self._later, (time, next(self._numbers), then))

    def send(self, what: Transfer | Order, size: float, then: Then) -> None:
        """Begin a flow; `then` is called when its last byte is there."""
        flow = Flow(what, size, then)
        self.flows.append(flow)

        def begin() -> None:
            flow.begun = True
            self.share()

        self.at(self.now + self.latency_s, begin)

    def stop(self, ends: Callable[[Transfer | Order], bool]) -> None:
        """End the flows of what is named where they are, and call nothing."""
        self.flows = [flow for flow in self.flows if not ends(flow.what)]
        self.share()

    def change(
        self,
        access: Mapping[Node, Access] | None = None,
        limits: Mapping[tuple[Node, Node], float] | None = None,
    ) -> None:
        """Give nodes other lines, or single ways a limit, from now on."""
        self.access.update(access or {})
        self.limits.update(limits or {})
        self.share()

    def share(self) -> None:
        """Set all rates: fill evenly until a line is full, fix its flows, go on."""
        room: dict[object, float] = {}
        users: dict[object, list[Flow]] = {}
        flowing = [flow for flow in self.flows if flow.begun]
        for flow in flowing:
            for line, capacity in self._lines(flow):
                room[line] = capacity
                users.setdefault(line, []).append(flow)
        open_flows = dict.fromkeys(flowing)
        count = {line: len(flows) for line, flows in users.items()}
        while open_flows:
            tight = min(count, key=lambda line: room[line] / count[line])
            rate = room[tight] / count[tight]
            for flow in [one for one in users[tight] if one in open_flows]:
                del open_flows[flow]
                flow.rate = rate
                for line, _ in self._lines(flow):
                    room[line] = max(room[line] - rate, 0.0)
                    count[line] -= 1
                    if not count[line]:
                        del count[line]

    def _lines(self, flow: Flow) -> list[tuple[object, float]]:
        """Return what a flow passes, and how much goes through each, bytes/s."""
        sender, receiver = flow.what.sender, flow.what.receiver
        way = (sender, receiver)
        up, down = self.access[sender].up, self.access[receiver].down
        limit = self.limits.get(way, math.inf)
        return [((sender, "up"), up), ((receiver, "down"), down), (way, limit)]

    def run(self, until: Callable[[], bool]) -> None:
        """Move the clock from event to event, until something holds or nothing comes."""
        while not until():
            ends = [f.left / f.rate for f in self.flows if f.rate > 0.0]
            step = min(ends, default=math.inf)
            if self._later:
                step = min(step, self._later[0][0] - self.now)
            if step == math.inf:
                return
            self._advance(max(step, 0.0))

    def _advance(self, step: float) -> None:
        self.now += step
        for flow in self.flows:
            flow.left -= step * flow.rate
        # What is left of a flow after rounding is less than it sends in a nanosecond.
        ended = [f for f in self.flows if f.begun and f.left <= 1e-9 * f.rate]
        if ended:
            self.flows = [f for f in self.flows if f not in ended]
            self.share()
        for flow in ended:
            flow.then()
        while self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()


@dataclass(frozen=True, slots=True)
class Ways:
    """How a node behaves that is not as it should be.

    Attributes:
        says: it claims so many times what its transfers took.
        wrong: what it sends has another digest.
        stalls: what it sends or is sent never ends.
    """

    says: float = 1.0
    wrong: bool = False
    stalls: bool = False


HONEST = Ways()


class PlayedDistribution:
    """A version on its way through a simulated network.

    Args:
        network: it; several may play on one.
        schedule: who serves whom.
        ways: of nodes that are not honest.
    """

    def __init__(
        self,
        network: Network,
        schedule: Distribution,
        ways: Mapping[Node, Ways] | None = None,
    ) -> None:
        self.network, self.schedule, self.ways = network, schedule, dict(ways or {})
        self.given: list[Transfer] = []
        for node in list(schedule.holders):
            self._ask(node)

    def _ask(self, node: Node, sent: Sent | None = None) -> None:
        """Do what the schedule says, as many transfers as it says."""
        while True:
            reply = self.schedule.ask(node, self.network.now, sent)
            if not isinstance(reply, Give) or reply.transfer in self.given:
                return
            sent = None
            self._send(reply)

    def _send(self, give: Give) -> None:
        one = give.transfer
        self.given.append(one)
        self.network.at(give.until, self._expire)
        if not any(self._way(node).stalls for node in (one.sender, one.receiver)):
            begun, size = self.network.now, self.schedule.size
            self.network.send(one, size, lambda: self._end(one, begun))

    def _way(self, node: Node) -> Ways:
        return self.ways.get(node, HONEST)

    def _end(self, one: Transfer, begun: float) -> None:
        now = self.network.now
        took, digest = now - begun, self.schedule.version
        if self._way(one.sender).wrong:
            digest = "something else"
        said = took * self._way(one.receiver).says
        self.schedule.received(one, said, digest, now)
        self._ask(one.sender, Sent(one, took * self._way(one.sender).says))
        self._ask_all() if digest != self.schedule.version else self._ask(one.receiver)

    def _expire(self) -> None:
        late = self.schedule.expire(self.network.now)
        if late:
            self.network.stop(lambda what: what in late)
            self._ask_all()

    def _ask_all(self) -> None:
        for node in list(self.schedule.holders):
            self._ask(node)

    def kill(self, node: Node) -> None:
        """End a node, with what it holds and sends."""
        self.network.stop(lambda what: node in (what.sender, what.receiver))
        self.schedule.gone(node, self.network.now)
        self._ask_all()


def distribute(
    network: Network, schedule: Distribution, ways: Mapping[Node, Ways] | None = None
) -> dict[Node, float]:
    """Return when each node had the version, s from now; who never did is left out."""
    begun = network.now
    PlayedDistribution(network, schedule, ways)
    network.run(lambda: schedule.done)
    return {
        node: at - begun
        for node, at in schedule.holders.items()
        if node != schedule.nodes[0]
    }


class PlayedAggregation(Generic[SumT]):
    """A round's sum on its way through a simulated network.

    Args:
        network: it; several may play on one.
        schedule: who adds to whom.
        values: the workers' contributions, the same in each segment.
        ways: of nodes that are not honest.
        segments: of a vector.
    """

    def __init__(
        self,
        network: Network,
        schedule: Aggregation,
        values: Mapping[Node, SumT],
        ways: Mapping[Node, Ways] | None = None,
        segments: int = 1,
    ) -> None:
        self.network, self.schedule, self.ways = network, schedule, dict(ways or {})
        given = {schedule.root: None, **values}
        self.holders = {
            (node, segment): Holder(node, value)
            for node, value in given.items()
            for segment in range(segments)
        }
        for node, segment in self.holders:
            self.ready(node, segment)

    @property
    def total(self) -> SumT | None:
        """What the root has, the same of each segment; else None."""
        root = self.schedule.root
        found = [one.total for key, one in self.holders.items() if key[0] == root]
        return found[0] if all(one == found[0] for one in found) else None

    def ready(self, node: Node, segment: int = 0) -> None:
        """Let a node say what it has of a segment."""
        parts, now = self.holders[node, segment].parts(), self.network.now
        self._carry_out(self.schedule.ready(node, parts, now, segment))

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            self._send(order)

    def _send(self, order: Order) -> None:
        self.network.at(self.network.now + self.schedule.lease_s, self._expire)
        pair = (order.sender, order.receiver)
        if not any(self.ways.get(node, HONEST).stalls for node in pair):
            begun, size = self.network.now, self.schedule.size
            self.network.send(order, size, lambda: self._end(order, begun))

    def _end(self, order: Order, begun: float) -> None:
        took, now = self.network.now - begun, self.network.now
        sender = self.holders[order.sender, order.segment]
        receiver = self.holders[order.receiver, order.segment]
        value = sender.give(order.part)
        if value is not None and receiver.take(order, value):
            new = self.schedule.finished(order, took, receiver.parts(), now)
            self.schedule.sent(order, took * self.ways.get(order.sender, HONEST).says)
        else:
            who = sender if value is None else receiver
            new = self.schedule.refused(who.node, order, who.parts(), now)
        self._carry_out(new)

    def _expire(self) -> None:
        new = self.schedule.expire(self.network.now)
        self.network.stop(self._is_over)
        self._carry_out(new)

    def _is_over(self, what: Transfer | Order) -> bool:
        ours = isinstance(what, Order) and what.round == self.schedule.name
        return ours and what not in self.schedule.open

    def kill(self, node: Node) -> None:
        """End a node, with what it holds and sends."""
        self.network.stop(lambda what: node in (what.sender, what.receiver))
        self._carry_out(self.schedule.gone(node, self.network.now))


def aggregate(
    network: Network,
    schedule: Aggregation,
    values: Mapping[Node, SumT],
    ways: Mapping[Node, Ways] | None = None,
    segments: int = 1,
) -> tuple[float, SumT | None]:
    """Return how long the root waited for the sum, s, and the sum."""
    begun = network.now
    play = PlayedAggregation(network, schedule, values, ways, segments)
    network.run(lambda: schedule.done)
    return network.now - begun, play.total
