"""The best schedule of one transfer at a time a node, found by branch and bound.

It knows every rate beforehand: what ours is held against, for few nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bench.traffic.trees import Access, relax
from stoilo.learn.traffic.links import Node

MOST = 12  # nodes beside the root: a second for nine, up to a minute for twelve


def find_best(
    access: Mapping[Node, Access], root: Node, size: float, *, last: bool = False
) -> list[float]:
    """Return the receipt times, s, of the best schedule of one transfer at a time a node.

    Branch and bound over who serves whom next.

    Args:
        access: of at most `MOST` nodes and the root.
        root: who has the version.
        size: bytes.
        last: the last receipt is to be early, not the mean: for a sum, with each access
            reversed.
    """
    assert len(access) <= MOST + 1, "larger ones are bounded only"
    return _Search(access, size, last=last).run(root)


class _Search:
    """What one search knows: rates, and the best schedule so far."""

    def __init__(
        self, access: Mapping[Node, Access], size: float, *, last: bool
    ) -> None:
        self.access, self.size, self.last = access, size, last
        self.best, self.times = math.inf, list[float]()

    def run(self, root: Node) -> list[float]:
        self._visit([(0.0, root)], frozenset(self.access) - {root}, [])
        return self.times

    def _cost(self, times: Sequence[float]) -> float:
        return max(times) if self.last else sum(times)

    def _bound(
        self, free: Sequence[tuple[float, Node]], left: frozenset[Node]
    ) -> list[float]:
        """Return times before which those left cannot be served."""
        down = max(self.access[node].down for node in left)
        up = max(self.access[node].up for node in left)
        best = max(up, *(self.access[node].up for _, node in free))
        alone = sorted(
            free[0][0] + self.size / min(best, self.access[n].down) for n in left
        )
        senders = [(t, self.size / min(self.access[n].up, down)) for t, n in free]
        each = self.size / min(up, down)
        return relax(senders, each, len(left), lambda times: alone[len(times)])

    def _visit(
        self,
        free: list[tuple[float, Node]],
        left: frozenset[Node],
        times: list[float],
    ) -> None:
        """Let the node that is free first serve each of those left in turn, or nobody."""
        if not left:
            if self._cost(times) < self.best:
                self.best, self.times = self._cost(times), sorted(times)
            return
        if not free or self._cost([*times, *self._bound(free, left)]) >= self.best:
            return
        (now, sender), rest = free[0], free[1:]
        ends = sorted(
            (now + self.size / min(self.access[sender].up, self.access[n].down), n)
            for n in left
        )
        for end, node in ends:
            then = sorted([*rest, (end, sender), (end, node)])
            self._visit(then, left - {node}, [*times, end])
        self._visit(rest, left, times)
