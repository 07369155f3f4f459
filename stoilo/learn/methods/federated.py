"""Rounds of local training: FedAvg (McMahan et al. 2017) and DiLoCo (Douillard et al. 2023).

In a round, some data parts are trained locally from the same parameters for many steps. Their
mean, weighted by samples, gives the *outer gradient* ``W - mean(W_c)``; an outer optimiser
applies it: plain steps of rate 1 are FedAvg; Nesterov momentum over AdamW inside is DiLoCo.
Volunteers keep nothing between rounds: an inner optimiser begins each round anew, or its state
travels with the data part (`LocalWork.keep`), which makes tasks and answers larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import (
    Order,
    Plain,
    Reply,
    Snapshot,
    State,
    join_states,
    load_replies,
    read_int,
    read_table,
    save_replies,
    select,
)
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.methods.base import (
    Ledger,
    LocalWork,
    MethodBase,
    Outcome,
    check_parts,
    derive_seed,
    shuffle,
)
from stoilo.learn.methods.buffers import pool_buffers
from stoilo.learn.methods.optimizers import Optimizer, Sgd

_FIRST, _SECOND = 0.9, 0.999  # the kernels' betas
# AdamW's largest ``|first| / √second``, whatever the gradients (Cauchy, Schwarz).
MOST_RATIO = (1.0 - _FIRST) / math.sqrt((1.0 - _SECOND) * (1.0 - _FIRST**2 / _SECOND))


class InnerStates:
    """The optimiser of each data part; nothing when the local work keeps none.

    Attributes:
        stride: by how much a round moves the version: an order with a state of its own
            starts from a version of its own, between those of two rounds.
    """

    def __init__(self, local: LocalWork, parts: int) -> None:
        self._local = local
        self.stride = parts + 1 if local.keep else 1
        self._rows: dict[str, Tensors] = {}
        self._made: dict[str, int] = {}

    def count_steps(self, part: int) -> int:
        """Return how many steps a part's optimiser has seen."""
        return self._made.get(str(part), 0)

    def attach(self, part: int, now: Snapshot) -> Snapshot:
        """Return what the part's order starts from: parameters and state, stacked."""
        if not self._local.keep:
            return now
        held = self._rows.get(str(part))
        count = self._local.count_rows() - 1
        stacked = {
            name: np.stack(
                [array, *(held[name] if held else np.zeros((count, *array.shape)))]
            ).astype(array.dtype)
            for name, array in now.parameters.items()
        }
        # Its own number: two parts' orders must not be taken for the same upload.
        return Snapshot(now.version + 1 + part, stacked, now.buffers)

    def take(self, order: Order, reply: Reply) -> Reply:
        """Keep the state that an answer brings; return the answer without it."""
        if not self._local.keep:
            return reply
        part = str(order.part)
        rows = {name: array[1:] for name, array in reply.tensors.items()}
        is_adamw = self._local.optimizer == "adamw"
        self._rows[part] = make_sound(rows) if is_adamw else rows
        self._made[part] = self.count_steps(order.part) + int(
            str(order.settings["steps"])
        )
        parameters = {name: array[0] for name, array in reply.tensors.items()}
        return replace(reply, tensors=parameters)

    def save(self) -> State:
        """Return all states, each array as it is held."""
        made: dict[str, Plain] = dict(self._made)
        rows = {part: State(held, {}) for part, held in self._rows.items()}
        return join_states(rows=join_states(**rows), made=State({}, made))

    def load(self, state: State) -> None:
        """Take up saved states."""
        rows, made = select(state, "rows"), read_table(state.plain, "made")
        self._rows = {part: dict(select(rows, part).tensors) for part in rows.plain}
        self._made = {part: read_int(made, part) for part in made}


def make_sound(rows: Tensors) -> Mapping[str, Array]:
    """Return AdamW's two moments (2, …) as some gradients could have left them."""
    found = {}
    for name, (first, second) in rows.items():
        # A negative one would make the root NaN, and with it every parameter.
        squares = np.maximum(second, 0.0)
        most = MOST_RATIO * np.sqrt(squares)
        found[name] = np.stack([np.clip(first, -most, most), squares])
    return found


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
        self._inner = InnerStates(settings.local, len(self._parts))
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
        self._replies[order.key] = self._inner.take(order, reply)
        needed = round_up(self.settings.fraction, self._ledger.size)
        if self._ledger.answered < needed:
            return Outcome(applied=True, epoch=number)
        # They started from this round's parameters: in the next they would not fit.
        late = self._ledger.outstanding
        self._apply()
        self._round += 1
        self._open()
        return Outcome(applied=True, epoch=number, ended=True, late=late, given_up=late)

    def _save(self) -> Mapping[str, State]:
        return {
            "place": State({}, {"round": self._round}),
            "ledger": self._ledger.save(),
            "replies": save_replies(self._replies),
            "optimizer": self.optimizer.save(),
            "inner": self._inner.save(),
        }

    def _load(self, state: State) -> None:
        self._round = read_int(select(state, "place").plain, "round")
        self._ledger = Ledger.load(select(state, "ledger"))
        self._replies = load_replies(select(state, "replies"))
        self.optimizer.load(select(state, "optimizer"))
        self._inner.load(select(state, "inner"))

    def _open(self) -> None:
        parts = len(self._parts)
        chosen = shuffle(parts, self.settings.seed, self._round)
        count = round_up(self.settings.clients, parts)
        self._ledger = Ledger(f"r{self._round}/p{part}" for part in chosen[:count])
        self._replies = {}

    def _order(self, key: str) -> Order:
        part, local = int(key.rpartition("p")[2]), self.settings.local
        size, place = self._parts[part], (self.settings.seed, self._round, part)
        seed, made = derive_seed(*place), self._inner.count_steps(part)
        settings = local.render(size, seed, "parameters", made)
        return Order(
            key,
            "local_steps",
            self._inner.attach(part, self._snapshot),
            part,
            local.count_samples(size),
            settings,
        )

    def _apply(self) -> None:
        # By key, not by arrival: the same answers give the same bits.
        replies = [self._replies[key] for key in sorted(self._replies)]
        now = self._snapshot
        self._snapshot = Snapshot(
            now.version + self._inner.stride,
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


def round_up(share: float, size: int) -> int:
    """Return that share of `size`, rounded up, against rounding errors of the share."""
    # As binary fractions go: 0.7 of 10 is 7, not 8.
    return min(size, max(1, math.ceil(share * size - 1e-9)))


def fedavg(
    start: Snapshot, parts: Sequence[int], settings: FederatedSettings
) -> Federated:
    """Return FedAvg: the parts' weighted mean becomes the next version."""
    return Federated(start, parts, Sgd(1.0), settings)


def diloco(
    start: Snapshot,
    parts: Sequence[int],
    settings: FederatedSettings,
    *,
    rate: float = 0.7,
    momentum: float = 0.9,
) -> Federated:
    """Return DiLoCo: an outer Nesterov step; give `settings` AdamW as local optimiser.

    As published, each part's AdamW goes on in its next round: ``LocalWork(keep=True)``.
    """
    outer = Sgd(rate, momentum=momentum, nesterov=True)
    return Federated(start, parts, outer, settings)
