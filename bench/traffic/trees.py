"""Fixed trees as schedules of the same kind, and what no schedule can be faster than.

They are what the trees that find themselves are measured against, in the same harness. The
bounds know every rate beforehand, which an online schedule does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.distribution import Distribution
from stoilo.learn.traffic.ledger import NOTHING, Ids, Order
from stoilo.learn.traffic.links import Node

Tree: TypeAlias = dict[Node, list[Node]]  # a node's children; leaves may be left out


def star(root: Node, nodes: Sequence[Node]) -> Tree:
    """Return the tree of a plain parameter server."""
    return {root: list(nodes)}


def balance(root: Node, nodes: Sequence[Node]) -> Tree:
    """Return the binary tree in the given order, filled level by level."""
    row = [root, *nodes]
    return {node: row[2 * i + 1 : 2 * i + 3] for i, node in enumerate(row)}


def chain(root: Node, nodes: Sequence[Node]) -> Tree:
    """Return a ring: each node serves the next one."""
    row = [root, *nodes]
    return {node: row[i + 1 : i + 2] for i, node in enumerate(row)}


class TreeDistribution(Distribution):
    """A version on its way down a fixed tree: to all children at once.

    Args:
        tree: who serves whom.
    """

    def __init__(self, *args: Any, tree: Tree, **options: Any) -> None:  # noqa: ANN401 - as `Distribution`
        super().__init__(*args, **options)
        self.tree, self.abreast = tree, len(self.nodes)

    def _choose(self, sender: Node) -> Node | None:
        free = set(self._candidates(sender))
        return next((n for n in self.tree.get(sender, ()) if n in free), None)


class TreeAggregation(Aggregation):
    """A round's sum on its way up a fixed tree: all children send at once.

    Args:
        tree: who sums up for whom.
    """

    def __init__(self, *args: Any, tree: Tree, **options: Any) -> None:  # noqa: ANN401 - as `Aggregation`
        super().__init__(*args, **options)
        self.tree = tree
        self.parents = {child: node for node in tree for child in tree[node]}

    def ready(
        self, node: Node, parts: Sequence[Ids], now: float, segment: int = 0
    ) -> list[Order]:
        """Take what a node has; it may be receiving from others at the same time."""
        one = self.ledgers.get(segment)
        if one and node in one.active and parts:
            one.active[node] = parts[0]
        return super().ready(node, parts, now, segment)

    def _pair(self, now: float) -> Iterator[Order]:
        for segment, one in self.ledgers.items():
            for node, part in one.active.items():
                whole = part.issuperset(self.tree.get(node, NOTHING))
                if whole and node not in one.busy and self.parents[node] in one.parts:
                    yield self._order(segment, node, self.parents[node], now)


@dataclass(frozen=True, slots=True)
class Access:
    """What a node can send and receive in all, bytes/s."""

    up: float
    down: float

    def reverse(self) -> Access:
        """Return it as seen by time running backwards: a sum up is a version down."""
        return Access(self.down, self.up)


def bound_receipts(
    access: Mapping[Node, Access], root: Node, size: float
) -> list[float]:
    """Return times, s, before which no schedule has served one, two, … all nodes.

    A schedule may share capacity in any way, but a node gets its copy from one other. Two
    relaxations hold for each: all holders together have sent as many bytes as were
    received; and each holder alone has sent whole copies. For sums of whole vectors reverse
    each access: the last time bounds the round; `bound_sum` holds for any cut of them.
    """
    nodes = [access[node] for node in access if node != root]
    ups = sorted((one.up for one in nodes), reverse=True)
    alone = sorted(size / one.down for one in nodes)

    def least(times: Sequence[float]) -> float:
        sent = sum(up * time for up, time in zip(ups, times, strict=False))
        capacity = access[root].up + sum(ups[: len(times)])
        return max(alone[len(times)], ((len(times) + 1) * size + sent) / capacity)

    return relax([(0.0, size / access[root].up)], size / ups[0], len(nodes), least)


def bound_sum(access: Mapping[Node, Access], root: Node, size: float) -> float:
    """Return the time, s, before which the root has no sum of all nodes' vectors.

    However they are cut and joined: each node sends as much as its own has at least once,
    and as much comes to the root.
    """
    ups = [one.up for node, one in access.items() if node != root]
    return size / min(*ups, access[root].down)


def relax(
    senders: Sequence[tuple[float, float]],
    each: float,
    count: int,
    least: Callable[[Sequence[float]], float],
) -> list[float]:
    """Return when so many are served, in a world in which who is served does not matter.

    Args:
        senders: since when each sends, and how long a copy takes it, s.
        each: how long a copy takes whoever has been served.
        count: how many.
        least: the earliest time of the next, given those before.
    """
    ends = [(since + takes, takes) for since, takes in senders]
    heapq.heapify(ends)
    times: list[float] = []
    while len(times) < count:
        end, takes = ends[0]
        times.append(max(end, least(times)))
        heapq.heapreplace(ends, (end + takes, takes))
        heapq.heappush(ends, (times[-1] + each, each))
    return times
