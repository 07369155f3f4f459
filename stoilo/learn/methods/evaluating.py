"""How good a version is on held-out parts: sums of losses and right answers, nothing moves.

Each order is kernel ``evaluate`` over a block of a part; the version stays what it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.methods.base import Ledger, MethodBase, Outcome, check_parts


class Evaluating(MethodBase):
    """The sums over all samples, each counted once.

    Args:
        start: the version.
        parts: sizes of the held-out parts.
        block: most samples of an order; 0 for whole parts.
    """

    kept = MethodBase.kept | {"_losses": dict[str, float], "_right": dict[str, int]}
    parts = ("_ledger",)

    def __init__(self, start: Snapshot, parts: Sequence[int], block: int = 0) -> None:
        super().__init__(start)
        self._parts = check_parts(parts)
        self.settings = {"block": block}
        self._block = block or max(parts)
        self._losses: dict[str, float] = {}  # of each order, the sum
        self._right: dict[str, int] = {}
        self._ledger = Ledger(
            f"p{part}/s{start}"
            for part, size in enumerate(self._parts)
            for start in range(0, size, self._block)
        )

    @property
    def finished(self) -> bool:
        """Whether every sample has been counted."""
        return self._ledger.answered == self._ledger.size

    @property
    def loss(self) -> float:
        """Mean of the samples' losses; the same bits in whatever order answers came."""
        return math.fsum(self._losses.values()) / sum(self._parts)

    @property
    def accuracy(self) -> float | None:
        """Share of samples that were classified rightly; None where nobody counted."""
        counted = all(right >= 0 for right in self._right.values())
        return sum(self._right.values()) / sum(self._parts) if counted else None

    def lose(self, order: Order) -> None:
        """Order it again."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw(room)

    def _order(self, key: str) -> Order:
        part, start = (int(word[1:]) for word in key.split("/"))
        stop = min(start + self._block, self._parts[part])
        rows = tuple(range(start, stop)) if self._block < self._parts[part] else None
        settings = {"frozen_buffers": True}  # none come back: nothing moves
        return Order(
            key, "evaluate", self._snapshot, part, stop - start, settings, rows
        )

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - there is one version
        if not self._ledger.answer(order.key):
            return Outcome(applied=False, epoch=0)
        self._losses[order.key] = reply.loss_sum
        self._right[order.key] = reply.correct
        return Outcome(applied=True, epoch=0, ended=self.finished)
