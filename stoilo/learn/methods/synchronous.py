"""Synchronous data-parallel batch gradient descent (STOILO's DPBGD, thesis §7.1.1).

A step sends the same parameters with a block of each data part; the answers are *sums* of
gradients, so that the step's gradient is their sum over the number of samples, whatever the
blocks' sizes. With a `fraction`, a step ends when that share of its answers is there (partial
synchronisation), and what comes later is discarded or counts in the next step. `local` steps
make it parameter averaging (local SGD); `overlapping` has two steps at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import Array, Tensors, scale
from stoilo.learn.methods.base import (
    Ledger,
    LocalWork,
    MethodBase,
    Outcome,
    Piece,
    check_parts,
    derive_order_seed,
    round_up,
    shuffle,
)
from stoilo.learn.methods.buffers import USUAL, Momenta, pool_buffers
from stoilo.learn.methods.optimizers import Momentum, Optimizer, Sgd
from stoilo.learn.methods.schedules import Warmup

# Replies, in the order of their keys → one weighted sum; robust rules fit here.
Combine: TypeAlias = Callable[[Sequence[Reply]], Tensors]
# Number of the step, from 0 → learning rate.
Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class SynchronousSettings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        block: samples of each part in one step, one number or one a part; 0 for the
            whole part (a step an epoch).
        fraction: share of a step's answers that end it, rounded up.
        late: what becomes of answers to earlier steps.
        reduction: the loss is the samples' mean or sum.
        seed: of the shuffling: once an epoch, each sample once.
        bn_momentum: the model's BatchNorm momentum (see `stoilo.learn.methods.buffers`).
        backups: once so small a share of a step is unanswered, what is out goes out again
            to hosts that have nothing else to do, and the first answer counts; 0: never.
        local: a volunteer makes these steps with its block, and the way that they led,
            weighted by samples, is the gradient: for ``Sgd(1.0)`` the mean of parameters.
        in_order: the samples of a part are used as they lie, not shuffled once an epoch.
    """

    epochs: int
    block: int | tuple[int, ...] = 0
    fraction: float = 1.0
    late: Literal["discard", "queue"] = "discard"
    reduction: Literal["mean", "sum"] = "mean"
    seed: int = 0
    bn_momentum: float | Momenta = USUAL
    backups: float = 0.0
    local: LocalWork | None = None
    in_order: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        shares = 0.0 < self.fraction <= 1.0 and 0.0 <= self.backups <= 1.0
        block = self.block if isinstance(self.block, int) else min(self.block)
        if self.local and (self.late, self.reduction) != ("discard", "mean"):
            raise UsageError("STO-T040", "local steps need late=discard, a mean loss")
        if self.epochs < 1 or block < 0 or not shares:
            raise UsageError(
                "STO-T040",
                f"epochs {self.epochs}, block {self.block}, fraction {self.fraction},"
                f" backups {self.backups} do not describe a training",
                hint="epochs ≥ 1, block ≥ 0, 0 < fraction ≤ 1, 0 ≤ backups ≤ 1",
            )


def sum_gradients(replies: Sequence[Reply]) -> dict[str, Array]:
    """Return the sum of what the replies bring; a name that none has stays away."""
    total: dict[str, Array] = {}
    for reply in replies:
        for name, array in reply.tensors.items():
            # In doubles: a sum of many float32 gradients would depend on their order.
            fresh = array.astype(np.float64)
            total[name] = total[name] + fresh if name in total else fresh
    return total


class Synchronous(MethodBase):
    """One optimiser step from each round of gradients."""

    kept = MethodBase.kept | {
        "_epoch": int,
        "_step": int,
        "_steps": int,
        "_late": set[str],
        "_replies": dict[str, Reply],
        "_queued": dict[str, Reply],
        "_cuts": int,
    }
    parts: ClassVar[tuple[str, ...]] = ("_ledger", "optimizer", "combine")

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
        super().__init__(start)
        self.settings = settings
        self.optimizer = optimizer
        self._parts = check_parts(parts)
        if len(self._blocks) != len(self._parts):
            raise UsageError("STO-T040", "there are not as many blocks as data parts")
        self.combine = combine
        self.rates = schedule  # whole rates; `schedule` of the base has factors
        self._epoch, self._step, self._steps = 0, 0, 0
        self._late: set[str] = set()  # keys of earlier steps that are out
        self._replies: dict[str, Reply] = {}
        self._queued: dict[str, Reply] = {}
        self._cuts = self._wanted = (
            1  # pieces of a part's work: now, from the next step on
        )
        self._begin()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done; what is still out no longer matters."""
        return self._epoch >= self.settings.epochs

    @property
    def steps(self) -> int:
        """How many steps have been made."""
        return self._steps

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has: by the largest part."""
        pairs = zip(self._parts, self._blocks, strict=True)
        return max(math.ceil(size / block) if block else 1 for size, block in pairs)

    def cut(self, cuts: int) -> None:
        """Let each part's gradients come in so many pieces, from the next step on.

        The sum is the same but for rounding. Local steps stay whole.
        """
        self._wanted = cuts if self.settings.local is None else 1

    @property
    def _blocks(self) -> tuple[int, ...]:
        block = self.settings.block
        return (block,) * len(self._parts) if isinstance(block, int) else block

    def lose(self, order: Order) -> None:
        """Order it again, unless its step is over."""
        self._late.discard(order.key)
        self._ledger.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        return self._ledger.draw_all(room, self.settings.backups)

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - a round's are its own
        epoch = min(self._epoch, self.settings.epochs - 1)
        before = frozenset(self._late)
        applied = self._accept(order.key, reply)
        ended = applied and self._advance()
        late = tuple(sorted(self._late - before))
        return Outcome(applied, epoch, ended, late, self._give_up())

    def _accept(self, key: str, reply: Reply) -> bool:
        if self._ledger.answer(key):
            # Kept as it came: the step is made of all answers at once.
            self._replies[key] = reply
            return True
        return key in self._late and self._queue(key, reply)

    def _give_up(self) -> tuple[str, ...]:
        if self.settings.late == "queue":
            return ()
        # Told once: the driver cancels them, and their hosts are free.
        given_up, self._late = tuple(sorted(self._late)), set()
        return given_up

    def load(self, state: State) -> None:
        """Go on from a saved state; see `MethodBase.load`."""
        super().load(state)
        self._wanted, self._pieces = self._cuts, self._plan_open()

    def _begin(self) -> None:
        self._cuts = self._wanted
        self._pieces = self._plan_open()
        self._ledger = Ledger(self._pieces)

    def _plan_open(self) -> Mapping[str, Piece]:
        return self._plan(self._epoch, self._step)

    def _plan(self, epoch: int, step: int) -> Mapping[str, Piece]:
        if epoch >= self.settings.epochs:
            return {}
        pieces = dict[str, Piece]()
        # Another order each step, else the last parts would always be the late ones.
        turn = shuffle(len(self._parts), self.settings.seed, epoch, step).tolist()
        for part in turn:
            piece = self._cut(part, epoch, step)
            if piece is not None:
                pieces |= _divide(f"e{epoch}/s{step}/p{part}", piece, self._cuts)
        return pieces

    def _cut(self, part: int, epoch: int, step: int) -> Piece | None:
        size, block = self._parts[part], self._blocks[part]
        if not block:
            return Piece(part, size)
        place = (self.settings.seed, epoch, part)
        order = np.arange(size) if self.settings.in_order else shuffle(size, *place)
        rows = tuple(order[step * block :][:block].tolist())
        return Piece(part, len(rows), rows) if rows else None

    def _base_of(self, key: str) -> Snapshot:  # noqa: ARG002 - two may be open in a subclass
        return self._snapshot

    def _order(self, key: str) -> Order:
        seed, base = derive_order_seed(self.settings.seed, key), self._base_of(key)
        return self._pieces[key].order(key, base, seed, self.settings.local)

    def _advance(self) -> bool:
        ended = False
        while not self.finished and self._ledger.answered >= self._needed:
            ended |= self._end_step()
        return ended

    @property
    def _needed(self) -> int:
        return round_up(self.settings.fraction, self._ledger.size)

    def _end_step(self) -> bool:
        self._apply()
        self._late |= set(self._ledger.outstanding)
        self._steps += 1
        self._epoch, self._step = self._follow(self._epoch, self._step)
        self._begin()
        return self._step == 0

    def _follow(self, epoch: int, step: int) -> tuple[int, int]:
        last = step + 1 == self.steps_per_epoch
        return (epoch + 1, 0) if last else (epoch, step + 1)

    def _queue(self, key: str, reply: Reply) -> bool:
        self._late.remove(key)
        if self.settings.late == "discard" or self.finished:
            return False
        self._queued[key] = reply
        return True

    def _apply(self) -> None:
        replies = {**self._queued, **self._replies}
        # By key, not by arrival: the same answers give the same bits.
        counted = [self._as_sum(key, replies[key]) for key in sorted(replies)]
        if self.rates is not None:
            self.optimizer.rate = self.rates(self._steps)
        gradient = self.combine(counted)
        if self.settings.reduction == "mean":
            gradient = scale(gradient, 1.0 / sum(reply.samples for reply in counted))
        # Queued answers saw older parameters: their statistics would pull back.
        fresh = [self._replies[key] for key in sorted(self._replies)]
        momentum = 1.0 if self.settings.local else self.settings.bn_momentum
        self._snapshot = Snapshot(
            self._snapshot.version + 1,
            self._move_by(self.optimizer, gradient),
            pool_buffers(self._snapshot.buffers, fresh, momentum),
        )
        self._replies, self._queued = {}, {}

    def _as_sum(self, key: str, reply: Reply) -> Reply:
        """Return the reply with a sum over its samples: of gradients, or of ways."""
        if self.settings.local is None:
            return reply
        base = self._base_of(key).parameters
        ways = {n: base[n].astype(np.float64) - a for n, a in reply.tensors.items()}
        return replace(reply, tensors=scale(ways, float(reply.samples)))


def _divide(key: str, piece: Piece, cuts: int) -> dict[str, Piece]:
    """Return a part's samples of a step in pieces, by key."""
    if cuts == 1:
        return {key: piece}
    rows = np.arange(piece.samples) if piece.rows is None else np.array(piece.rows)
    found = [tuple(some.tolist()) for some in np.array_split(rows, cuts) if some.size]
    return {f"{key}/n{n}": Piece(piece.part, len(r), r) for n, r in enumerate(found)}


@dataclass(frozen=True, slots=True)
class LargeMinibatchSettings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        block: samples of each part in a step, n.
        rate: of a minibatch of one block, η; multiplied by the number of parts.
        momentum: of the optimiser.
        decay: of the weights; acts on the parameter, whatever the loss is scaled by.
        folded: the rate stands inside the momentum's buffer (with its correction; no decay).
        warmup: epochs of it.
        kind: of the warm-up.
        milestones: epochs at which the rate is divided by ten.
        fraction: share of a step's answers that end it.
        seed: of the one shuffling an epoch.
    """

    epochs: int
    block: int
    rate: float
    momentum: float = 0.9
    decay: float = 0.0
    folded: bool = False
    warmup: float = 5.0
    kind: Literal["gradual", "constant", "none"] = "gradual"
    milestones: tuple[int, ...] = ()
    fraction: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if self.block < 1 or not self.rate > 0.0 or not self.warmup >= 0.0:
            raise UsageError(
                "STO-T040",
                f"block {self.block}, rate {self.rate} or warmup {self.warmup}"
                " do not describe a training",
                hint="block ≥ 1, rate > 0, warmup ≥ 0",
            )
        if self.folded and self.decay:
            raise UsageError(
                "STO-T040", "decay is only defined with the rate outside of the buffer"
            )

    def make_optimizer(self) -> Optimizer:
        """Return the server's optimiser; the schedule sets its rate at each step."""
        if self.folded:
            return Momentum(self.rate, momentum=self.momentum)
        return Sgd(self.rate, momentum=self.momentum, decay=self.decay)

    def make_schedule(self, parts: Sequence[int]) -> Warmup:
        """Return the rates for a run on these data parts."""
        steps = math.ceil(max(parts) / self.block)
        return Warmup(
            self.rate, len(parts), steps, self.warmup, self.kind, self.milestones
        )


class LargeMinibatch(Synchronous):
    """Rounds of gradients with a scaled and warmed-up rate."""

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        settings: LargeMinibatchSettings,
        *,
        combine: Combine = sum_gradients,
    ) -> None:
        super().__init__(
            start,
            parts,
            settings.make_optimizer(),
            SynchronousSettings(
                settings.epochs,
                block=settings.block,
                fraction=settings.fraction,
                seed=settings.seed,
            ),
            combine=combine,
            schedule=settings.make_schedule(check_parts(parts)),
        )
