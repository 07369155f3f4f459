"""Rounds of local training: FedAvg (McMahan et al. 2017) and DiLoCo (Douillard et al. 2023).

In a round, some data parts are trained locally from the same parameters for many steps. Their
mean, weighted by samples, gives the *outer gradient* ``W - mean(W_c)``; an outer optimiser
applies it: plain steps of rate 1 are FedAvg, Adam's, Adagrad's and Yogi's are FedAdam,
FedAdagrad and FedYogi (Reddi et al. 2021); Nesterov momentum over AdamW inside is DiLoCo.
With `LocalWork.proximal`, local steps are FedProx's (Li et al. 2020).
Volunteers keep nothing between rounds: an inner optimiser begins each round anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.tensors import Array
from stoilo.learn.methods.base import (
    Ledger,
    LocalWork,
    MethodBase,
    Outcome,
    check_parts,
    derive_seed,
    round_up,
    shuffle,
)
from stoilo.learn.methods.buffers import pool_buffers
from stoilo.learn.methods.optimizers import Optimizer, Sgd


@dataclass(frozen=True, slots=True)
class FederatedSettings:
    """How to train.

    Attributes:
        rounds: how many.
        local: what a volunteer does with its part.
        clients: share of the parts that take part in a round, rounded up.
        fraction: share of a round's answers that end it, rounded up; later ones are dropped.
        weights: the mean is by "samples" or each part counts "equal".
        seed: of the choice of parts and of the volunteers' shuffling.
        backups: once so small a share of a round is unanswered, what is out goes out again
            to hosts that have nothing else to do, and the first answer counts; 0: never.
    """

    rounds: int
    local: LocalWork
    clients: float = 1.0
    fraction: float = 1.0
    weights: Literal["samples", "equal"] = "samples"
    seed: int = 0
    backups: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        fits = 0.0 < self.clients <= 1.0 and 0.0 < self.fraction <= 1.0
        fits = fits and 0.0 <= self.backups <= 1.0
        if self.rounds < 1 or not fits:
            raise UsageError(
                "STO-T040",
                f"rounds {self.rounds}, clients {self.clients}, fraction {self.fraction}"
                f" or backups {self.backups} do not describe a training",
                hint="rounds ≥ 1, 0 < clients ≤ 1, 0 < fraction ≤ 1, 0 ≤ backups ≤ 1",
            )


class Federated(MethodBase):
    """An outer step from each round of locally trained parameters."""

    kept = MethodBase.kept | {
        "_round": int,
        "_replies": dict[str, Reply],
    }
    parts = ("_ledger", "optimizer")

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        optimizer: Optimizer,
        settings: FederatedSettings,
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self.optimizer = optimizer
        self._parts = check_parts(parts)
        self._round = 0
        self._replies: dict[str, Reply] = {}
        self._open()

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self._round >= self.settings.rounds

    def lose(self, order: Order) -> None:
        """Order it again, unless its round is over."""
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw_all(room, self.settings.backups)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - late ones are dropped
        number = min(self._round, self.settings.rounds - 1)
        if not self._ledger.answer(order.key):
            return Outcome(applied=False, epoch=number)
        self._replies[order.key] = reply
        needed = round_up(self.settings.fraction, self._ledger.size)
        if self._ledger.answered < needed:
            return Outcome(applied=True, epoch=number)
        # They started from this round's parameters: in the next they would not fit.
        late = self._ledger.outstanding
        self._apply()
        self._round += 1
        self._open()
        return Outcome(applied=True, epoch=number, ended=True, late=late, given_up=late)

    def _open(self) -> None:
        parts = len(self._parts)
        chosen = shuffle(parts, self.settings.seed, self._round)
        count = round_up(self.settings.clients, parts)
        self._ledger = Ledger(f"r{self._round}/p{part}" for part in chosen[:count])
        self._replies = {}

    def _order(self, key: str) -> Order:
        part, local = int(key.rpartition("p")[2]), self.settings.local
        size, place = self._parts[part], (self.settings.seed, self._round, part)
        settings = local.render(size, derive_seed(*place), "parameters")
        return Order(
            key,
            "local_steps",
            self._snapshot,
            part,
            local.count_samples(size),
            settings,
        )

    def _apply(self) -> None:
        # By key, not by arrival: the same answers give the same bits.
        replies = [self._replies[key] for key in sorted(self._replies)]
        now = self._snapshot
        self._snapshot = Snapshot(
            now.version + 1,
            self.optimizer.step(now.parameters, self._differ(replies)),
            pool_buffers(now.buffers, replies, momentum=1.0),
        )

    def _differ(self, replies: Sequence[Reply]) -> dict[str, Array]:
        equal = self.settings.weights == "equal"
        weights = [1 if equal else reply.samples for reply in replies]
        found: dict[str, Array] = {}
        for name, array in self._snapshot.parameters.items():
            total = np.zeros(array.shape)
            for weight, reply in zip(weights, replies, strict=True):
                total = total + weight * reply.tensors[name].astype(np.float64)
            # The way down, so that any optimiser takes it for a gradient.
            found[name] = array - total / sum(weights)
        return found


def fedavg(
    start: Snapshot,
    parts: Sequence[int],
    settings: FederatedSettings,
    outer: Optimizer | None = None,
) -> Federated:
    """Return FedAvg: the parts' weighted mean becomes the next version, or `outer` steps."""
    return Federated(start, parts, outer or Sgd(1.0), settings)


def diloco(
    start: Snapshot,
    parts: Sequence[int],
    settings: FederatedSettings,
    *,
    rate: float = 0.7,
    momentum: float = 0.9,
) -> Federated:
    """Return DiLoCo: an outer Nesterov step; give `settings` AdamW as local optimiser."""
    outer = Sgd(rate, momentum=momentum, nesterov=True)
    return Federated(start, parts, outer, settings)
