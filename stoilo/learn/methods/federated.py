"""Rounds of local training: FedAvg (McMahan et al. 2017) and DiLoCo (Douillard et al. 2023).

In a round, some data parts are trained locally from the same parameters for many steps. Their
mean, weighted by samples, gives the *outer gradient* ``W - mean(W_c)``; an outer optimiser
applies it: plain steps of rate 1 are FedAvg, Adam's, Adagrad's and Yogi's are FedAdam,
FedAdagrad and FedYogi (Reddi et al. 2021); Nesterov momentum over AdamW inside is DiLoCo.
With `LocalWork.proximal`, local steps are FedProx's (Li et al. 2020). `Gossip` has a replica
for each part, of which pairs meet; `Regional` adds answers up in two levels.
Volunteers keep nothing between rounds: an inner optimiser begins each round anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.methods.base import (
    Ledger,
    LocalWork,
    MethodBase,
    Outcome,
    Piece,
    check_parts,
    derive_seed,
    round_up,
    shuffle,
)
from stoilo.learn.methods.buffers import pool_buffers
from stoilo.learn.methods.optimizers import Optimizer, Sgd
from stoilo.learn.methods.synchronous import Combine, sum_gradients


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
        seed = derive_seed(self.settings.seed, self._round, part)
        return Piece(part, self._parts[part]).order(key, self._snapshot, seed, local)

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


class Gossip(MethodBase):
    """Each part trains a replica of its own, and replicas average in pairs, by chance.

    Volunteers cannot talk to each other: a replica is a version that the trainer keeps, and
    two of them meet there. In each round the seed deals out pairs; a pair averages when both
    have answered and waits for no other. Averaging keeps the mean of all replicas, each
    counted alike: that mean is the newest version. With an odd number one stays alone.
    """

    kept = MethodBase.kept | {
        "_replicas": list[Snapshot],
        "_rounds": list[int],
        "_waiting": list[str],
        "_out": list[str],
        "_replies": dict[str, Reply],
    }

    def __init__(
        self, start: Snapshot, parts: Sequence[int], settings: FederatedSettings
    ) -> None:
        super().__init__(start)
        self.settings = settings
        self._parts = check_parts(parts)
        self._replicas = [start] * len(parts)
        self._rounds = [0] * len(parts)  # that each has made
        self._waiting = [f"r0/p{part}" for part in range(len(parts))]
        self._out: list[str] = []
        self._replies: dict[str, Reply] = {}

    @property
    def replicas(self) -> tuple[Snapshot, ...]:
        """The parts' own versions."""
        return tuple(self._replicas)

    @property
    def finished(self) -> bool:
        """Whether each has made all its rounds."""
        return min(self._rounds) >= self.settings.rounds

    def lose(self, order: Order) -> None:
        """Order it again, from the same replica."""
        if order.key in self._out:
            self._out.remove(order.key)
            self._waiting.append(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        drawn, self._waiting = self._waiting[:room], self._waiting[room:]
        self._out += drawn
        return drawn

    def _order(self, key: str) -> Order:
        part, local = int(key.rpartition("p")[2]), self.settings.local
        base, piece = self._replicas[part], Piece(part, self._parts[part])
        seed = derive_seed(self.settings.seed, self._rounds[part], part)
        return piece.order(key, base, seed, local)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - a replica's own is never stale
        before = min(self._rounds)
        number = min(before, self.settings.rounds - 1)
        if order.key not in self._out:
            return Outcome(applied=False, epoch=number)
        self._out.remove(order.key)
        self._replies[order.key] = reply
        pair = self._find_pair(order.part)
        keys = [f"r{self._rounds[order.part]}/p{part}" for part in pair]
        if all(key in self._replies for key in keys):
            self._meet(pair, [self._replies.pop(key) for key in keys])
        return Outcome(applied=True, epoch=number, ended=min(self._rounds) > before)

    def _find_pair(self, part: int) -> list[int]:
        turn = shuffle(len(self._parts), self.settings.seed, self._rounds[part])
        place = turn.tolist().index(part) // 2 * 2
        return sorted(turn.tolist()[place : place + 2])

    def _meet(self, pair: Sequence[int], replies: Sequence[Reply]) -> None:
        version = self._snapshot.version + 1
        tensors = [(reply.tensors, reply.buffers) for reply in replies]
        met = Snapshot(
            version, *(average(group) for group in zip(*tensors, strict=True))
        )
        for part in pair:
            self._replicas[part] = met
            self._rounds[part] += 1
            if self._rounds[part] < self.settings.rounds:
                self._waiting.append(f"r{self._rounds[part]}/p{part}")
        every = [(one.parameters, one.buffers) for one in self._replicas]
        means = (average(group) for group in zip(*every, strict=True))
        self._snapshot = Snapshot(version, *means)


def average(group: Sequence[Tensors]) -> dict[str, Array]:
    """Return the plain mean, made in doubles; whole numbers stay those of the first."""
    return {
        name: np.mean([one[name] for one in group], axis=0, dtype=np.float64).astype(
            array.dtype
        )
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in group[0].items()
    }


class Regional(Stateful):
    """A sum in two levels: of each region's answers, then of the regions.

    A region's sum is made of checked answers in the order of their keys, the root's in the
    order of regions, all in doubles: the same bits whatever comes first, and the flat sum but
    for the order of additions. Samples are counted where they are, so weights are exact.

    Attributes:
        regions: how many; answers are cut into runs of nearly equal length.
        combine: how a region adds up, a robust rule for example; its memory is common.
    """

    parts = ("combine",)

    def __init__(self, regions: int, combine: Combine = sum_gradients) -> None:
        self.regions, self.combine = regions, combine

    def __call__(self, replies: Sequence[Reply]) -> Tensors:
        """Return the sum of the regions' sums."""
        cuts = np.array_split(np.arange(len(replies)), self.regions)
        groups = [[replies[index] for index in cut] for cut in cuts if len(cut)]
        sums = [replace(group[0], tensors=self.combine(group)) for group in groups]
        return sum_gradients(sums)


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
