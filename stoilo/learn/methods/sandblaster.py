"""Sandblaster L-BFGS (Dean et al. 2012): whole-batch passes in small portions.

Each pass gives the loss and the gradient at one point; portions go to whoever is free, so
that a fast host has more of them, and near the end of a pass the oldest that are out go out
once more (the first answer counts). Sums travel: the mean and the regulariser are taken once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.methods.frame import Frame, Outcome
from stoilo.learn.methods.lbfgs import STANDARD, Coordinator, Rules
from stoilo.learn.methods.ledger import Ledger
from stoilo.learn.methods.plans import Piece, check_parts, derive_order_seed
from stoilo.learn.methods.states import read_float, select
from stoilo.learn.methods.vectors import Vectors
from stoilo.learn.tensors import flatten, unflatten
from stoilo.learn.work import Order, Reply, Snapshot, State

__all__ = ["Sandblaster", "SandblasterSettings"]


@dataclass(frozen=True, slots=True)
class SandblasterSettings:
    """How to train.

    Attributes:
        portions: of each data part.
        penalty: λ of ``λ/2·|w|²``, added to the mean loss once.
        shards: that vectors are cut into.
        backups: share of a pass below which its outstanding portions go out again; 0: never.
        rules: of the optimiser.
        seed: of what draws in the model; a portion draws the same in every pass, without
            which a line search would compare different functions.
    """

    portions: int = 1
    penalty: float = 0.0
    shards: int = 1
    backups: float = 0.25
    rules: Rules = STANDARD
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if (
            self.portions < 1
            or self.shards < 1
            or not self.penalty >= 0.0
            or not 0.0 <= self.backups <= 1.0
        ):
            raise UsageError(
                "STO-T040",
                "these portions, shards, penalty and backups do not describe a training",
                hint="portions and shards ≥ 1, penalty ≥ 0, 0 ≤ backups ≤ 1",
            )


class Sandblaster(Frame):
    """Passes over the data, driven by a coordinator without parameters."""

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        settings: SandblasterSettings,
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self._samples = sum(check_parts(parts))
        self._pieces = _cut_portions(parts, settings.portions)
        self._coordinator = Coordinator(settings.rules)
        self._losses: dict[str, float] = {}
        vector = flatten(start.parameters)
        self._vectors = Vectors(vector.size, settings.shards)
        for name in ("x", "trial"):
            self._vectors.put(name, vector)
        self._open()

    @property
    def finished(self) -> bool:
        """Whether the gradient is small, or no further step can be made."""
        return self._coordinator.stopped

    @property
    def value(self) -> float:
        """Loss with regulariser at the accepted point; NaN before the first pass."""
        return self._coordinator.value

    @property
    def iterations(self) -> int:
        """Accepted steps so far."""
        return self._coordinator.iterations

    @property
    def coordinator(self) -> Coordinator:
        """The part that decides; it holds no vector."""
        return self._coordinator

    def lose(self, order: Order) -> None:
        """Give the portion out again, unless a copy of it is still out."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        """Return further portions; when none waits, backup copies of the oldest."""
        keys = self._ledger.draw(room)
        if self.settings.backups:
            keys += self._ledger.draw_backups(room - len(keys), self.settings.backups)
        return keys

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - a pass's are its own
        """Add a portion's sums; with the last one, let the coordinator judge the pass."""
        epoch = self.iterations
        if not self._ledger.answer(order.key):
            return Outcome(applied=False, epoch=epoch)
        self._vectors.accumulate("slope", flatten(self._in_order(reply)))
        self._losses[order.key] = reply.loss_sum
        ended = self._ledger.answered == self._ledger.size and self._judge()
        return Outcome(applied=True, epoch=epoch, ended=ended)

    def _save(self) -> Mapping[str, State]:
        """Return the shards' vectors, the coordinator's scalars, the pass so far."""
        return {
            "coordinator": State({}, self._coordinator.save()),
            "ledger": self._ledger.save(),
            "losses": State({}, dict(self._losses)),
            "vectors": State(self._vectors.save(), {}),
        }

    def _load(self, state: State) -> None:
        losses = select(state, "losses").plain
        self._coordinator.load(select(state, "coordinator").plain)
        self._vectors.load(dict(select(state, "vectors").tensors))
        self._ledger = Ledger.load(select(state, "ledger"))
        self._losses = {key: read_float(losses, key) for key in losses}

    def _open(self) -> None:
        self._ledger = Ledger(
            f"v{self._snapshot.version}/{name}" for name in self._pieces
        )
        self._losses = {}
        self._vectors.zero("slope")

    def _order(self, key: str) -> Order:
        name = key.partition("/")[2]
        seed = derive_order_seed(self.settings.seed, name)
        return self._pieces[name].order(key, self._snapshot, seed)

    def _in_order(self, reply: Reply) -> dict[str, np.ndarray]:
        """Return the reply's arrays in the parameters' order, zeros where it has none."""
        return {
            name: reply.tensors.get(name, np.zeros_like(array))
            for name, array in self._snapshot.parameters.items()
        }

    def _judge(self) -> bool:
        vectors, penalty = self._vectors, self.settings.penalty
        value = math.fsum(self._losses.values()) / self._samples
        value += 0.5 * penalty * vectors.dot("trial", "trial")
        vectors.assign("slope", 1.0 / self._samples, "slope")
        vectors.axpy("slope", penalty, "trial")
        accepted = self._coordinator.judge(vectors, value)
        now = self._snapshot
        point = unflatten(vectors.gather("trial"), now.parameters)
        self._snapshot = Snapshot(now.version + 1, point, now.buffers)
        self._open()
        return accepted


def _cut_portions(parts: Sequence[int], portions: int) -> dict[str, Piece]:
    """Return all portions by their names, those of one part of nearly equal size."""
    found: dict[str, Piece] = {}
    for part, size in enumerate(parts):
        if portions == 1:
            found[f"p{part}"] = Piece(part, size)
            continue
        for number, rows in enumerate(np.array_split(np.arange(size), portions)):
            if rows.size:
                piece = Piece(part, int(rows.size), tuple(rows.tolist()))
                found[f"p{part}/n{number}"] = piece
    return found
