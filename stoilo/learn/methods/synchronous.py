"""Synchronous data-parallel batch gradient descent (STOILO's DPBGD, thesis §7.1.1).

A step sends the same parameters with a block of each data part; the answers are *sums* of
gradients, so that the step's gradient is their sum over the number of samples, whatever the
blocks' sizes. With a `fraction`, a step ends when that share of its answers is there (partial
synchronisation), and what comes later is discarded or counts in the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn import robust
from stoilo.learn.buffers import pool_buffers
from stoilo.learn.methods.ledger import Ledger
from stoilo.learn.methods.plans import Piece, check_parts, shuffle
from stoilo.learn.methods.states import (
    join,
    load_replies,
    load_snapshot,
    pick,
    read_int,
    read_keys,
    read_table,
    save_replies,
    save_snapshot,
)
from stoilo.learn.optimizers import Optimizer
from stoilo.learn.tensors import Array, Tensors, scale
from stoilo.learn.work import Order, Plain, Reply, Snapshot, State, Update

__all__ = [
    "Combine",
    "Schedule",
    "Synchronous",
    "SynchronousSettings",
    "combine_robustly",
    "sum_gradients",
]

Combine: TypeAlias = Callable[[Sequence[Reply]], Tensors]
"""Replies, in the order of their keys → one weighted sum; robust rules fit here."""
Schedule: TypeAlias = Callable[[int], float]
"""Number of the step, from 0 → learning rate."""


@dataclass(frozen=True, slots=True)
class SynchronousSettings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        block: samples of each part in one step; 0 for the whole part (a step an epoch).
        fraction: share of a step's answers that end it, rounded up.
        late: what becomes of answers to earlier steps.
        reduction: the loss is the samples' mean or sum.
        seed: of the shuffling: once an epoch, each sample once.
        bn_momentum: the model's BatchNorm momentum (see `stoilo.learn.buffers`).
    """

    epochs: int
    block: int = 0
    fraction: float = 1.0
    late: Literal["discard", "queue"] = "discard"
    reduction: Literal["mean", "sum"] = "mean"
    seed: int = 0
    bn_momentum: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if self.epochs < 1 or self.block < 0 or not 0.0 < self.fraction <= 1.0:
            raise UsageError(
                "STO-T040",
                f"epochs {self.epochs}, block {self.block}, fraction {self.fraction}"
                " do not describe a training",
                hint="epochs ≥ 1, block ≥ 0, 0 < fraction ≤ 1",
            )

    def count_needed(self, size: int) -> int:
        """Return how many of so many answers end a step."""
        return min(size, math.ceil(self.fraction * size - 1e-9))


def sum_gradients(replies: Sequence[Reply]) -> dict[str, Array]:
    """Return the sum of what the replies bring; a name that none has stays away."""
    total: dict[str, Array] = {}
    for reply in replies:
        for name, array in reply.tensors.items():
            fresh = array.astype(np.float64)
            total[name] = total[name] + fresh if name in total else fresh
    return total


def combine_robustly(rule: robust.Rule) -> Combine:
    """Return a way to combine a step's replies that bounds the influence of each."""
    return robust.RobustSum(rule)


class Synchronous:
    """One optimiser step from each round of gradients."""

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        optimizer: Optimizer,
        settings: SynchronousSettings,
        *,
        combine: Combine = sum_gradients,
        schedule: Schedule | None = None,
    ) -> None:
        self.settings = settings
        self.optimizer = optimizer
        self._parts = check_parts(parts)
        self._combine = combine
        self._schedule = schedule
        self._snapshot = start
        self._epoch, self._step, self._count = 0, 0, 0
        self._late: set[str] = set()  # keys of earlier steps that are out
        self._replies: dict[str, Reply] = {}
        self._queued: dict[str, Reply] = {}
        self._begin()

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    def finished(self) -> bool:
        """Whether all epochs are done; what is still out no longer matters."""
        return self._epoch >= self.settings.epochs

    @property
    def steps(self) -> int:
        """How many steps have been made."""
        return self._count

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has: by the largest part."""
        block = self.settings.block
        return math.ceil(max(self._parts) / block) if block else 1

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return further blocks of the present step."""
        if self.finished:
            return []
        return [self._order(key) for key in self._ledger.draw(room)]

    def take(self, order: Order, reply: Reply) -> Update:
        """Keep an answer; with the last one that is needed, make the step."""
        staleness = self._snapshot.version - reply.version
        epoch, ended = self._epoch, False
        applied = self._ledger.answer(order.key)
        if applied:
            self._replies[order.key] = reply
            ended = self._advance()
        elif order.key in self._late:
            applied = self._queue(order.key, reply)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=staleness,
            epoch=min(epoch, self.settings.epochs - 1),
            epoch_ended=ended,
        )

    def lose(self, order: Order) -> None:
        """Order it again, unless its step is over."""
        self._late.discard(order.key)
        self._ledger.lose(order.key)

    def save(self) -> State:
        """Return parameters, optimiser, place, and the answers of the step so far."""
        here, replies = save_snapshot(self._snapshot), save_replies(self._replies)
        queued, optimizer = save_replies(self._queued), self.optimizer.save()
        combine = self._combine
        rule = (
            combine.save() if isinstance(combine, robust.RobustSum) else State({}, {})
        )
        groups = join(
            replies=replies.tensors,
            queued=queued.tensors,
            optimizer=optimizer.tensors,
            combine=rule.tensors,
        )
        plain: dict[str, Plain] = {
            **here.plain,
            "epoch": self._epoch,
            "step": self._step,
            "count": self._count,
            "ledger": self._ledger.save(),
            "late": [*sorted(self._late)],
            "replies": dict(replies.plain),
            "queued": dict(queued.plain),
            "optimizer": dict(optimizer.plain),
            "combine": dict(rule.plain),
        }
        return State({**here.tensors, **groups}, plain)

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        plain = state.plain
        self._snapshot = load_snapshot(state, self._snapshot)
        self._epoch, self._step = read_int(plain, "epoch"), read_int(plain, "step")
        self._count = read_int(plain, "count")
        self._pieces = self._plan()
        self._ledger = Ledger.load(read_table(plain, "ledger"))
        self._late = set(read_keys(plain, "late"))
        self._replies = load_replies(_select(state, "replies"))
        self._queued = load_replies(_select(state, "queued"))
        self.optimizer.load(_select(state, "optimizer"))
        if isinstance(self._combine, robust.RobustSum) and "combine" in plain:
            self._combine.load(_select(state, "combine"))

    def _begin(self) -> None:
        self._pieces = self._plan()
        self._ledger = Ledger(self._pieces)

    def _plan(self) -> Mapping[str, Piece]:
        """Return the blocks of the present step by their keys."""
        if self.finished:
            return {}
        place, pieces = f"e{self._epoch}/s{self._step}", {}
        turn = shuffle(
            len(self._parts), self.settings.seed, self._epoch, self._step
        ).tolist()
        for part in turn:
            piece = self._cut(part)
            if piece is not None:
                pieces[f"{place}/p{part}"] = piece
        return pieces

    def _cut(self, part: int) -> Piece | None:
        """Return the part's block of this step; None when the part is used up."""
        size, block = self._parts[part], self.settings.block
        if not block:
            return Piece(part, size)
        order = shuffle(size, self.settings.seed, self._epoch, part)
        rows = tuple(order[self._step * block :][:block].tolist())
        return Piece(part, len(rows), rows) if rows else None

    def _order(self, key: str) -> Order:
        piece = self._pieces[key]
        return Order(
            key, "gradient", self._snapshot, piece.part, piece.samples, rows=piece.rows
        )

    def _advance(self) -> bool:
        """Make the step if enough is there; return whether that ended an epoch."""
        if self._ledger.answered < self.settings.count_needed(self._ledger.size):
            return False
        self._apply()
        self._late |= set(self._ledger.outstanding)
        self._count += 1
        self._step += 1
        ended = self._step == self.steps_per_epoch
        if ended:
            self._epoch, self._step = self._epoch + 1, 0
        self._begin()
        return ended

    def _queue(self, key: str, reply: Reply) -> bool:
        """Note an answer to an earlier step; return whether it will count."""
        self._late.remove(key)
        if self.settings.late == "discard" or self.finished:
            return False
        self._queued[key] = reply
        return True

    def _apply(self) -> None:
        replies = {**self._queued, **self._replies}
        counted = [replies[key] for key in sorted(replies)]
        if self._schedule is not None:
            self.optimizer.rate = self._schedule(self._count)
        gradient = self._combine(counted)
        if self.settings.reduction == "mean":
            gradient = scale(gradient, 1.0 / sum(reply.samples for reply in counted))
        fresh = [self._replies[key] for key in sorted(self._replies)]
        self._snapshot = Snapshot(
            self._snapshot.version + 1,
            self.optimizer.step(self._snapshot.parameters, gradient),
            pool_buffers(self._snapshot.buffers, fresh, self.settings.bn_momentum),
        )
        self._replies, self._queued = {}, {}


def _select(state: State, group: str) -> State:
    """Return the part of a state that stands under a name."""
    return State(pick(state.tensors, group), read_table(state.plain, group))
