"""Stale synchronous parallel training of any model, by any optimiser (Ho et al. 2013).

A worker is a part of the data; one iteration of it is one order, handed out when the
vector clock lets it start: nobody is more than ``staleness + 1`` iterations ahead of the
slowest, and no volunteer waits. Each answer is applied to the centre when it comes, and the
clock is committed there; an order carries the newest version, so that a part reads what it
wrote. With staleness 0 (BSP) a round's answers are kept until all are in and make one step
in a fixed order: the method is `Synchronous`, bit for bit. Without one (ASP) nobody waits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.tensors import mix, scale
from stoilo.learn.methods.base import (
    LocalWork,
    MethodBase,
    Outcome,
    Piece,
    check_parts,
    derive_order_seed,
    shuffle,
)
from stoilo.learn.methods.buffers import USUAL, Momenta, pool_buffers
from stoilo.learn.methods.optimizers import Optimizer
from stoilo.learn.methods.synchronous import Combine, sum_gradients
from stoilo.learn.store.clock import Attendance, VectorClock


class Clocked(MethodBase):
    """Iterations of workers under a vector clock; a subclass says what one is and does."""

    kept = MethodBase.kept | {"_told": int, "_staged": dict[int, Reply]}
    parts: ClassVar[tuple[str, ...]] = ("_attendance",)

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],  # how many samples each has
        clock: VectorClock,
        *,
        rounds: int,  # passes over the data
        chunks: int,  # iterations of each worker in a round
        staged: bool,  # with the limit 0, a round's answers are applied together
    ) -> None:
        super().__init__(start)
        self._parts, self._rounds, self._chunks = check_parts(parts), rounds, chunks
        clock.join(map(_worker, range(len(parts))))
        self._attendance = Attendance(clock, rounds * chunks)
        self._stages = staged and clock.limit == 0
        self._staged: dict[int, Reply] = {}
        self._told = 0

    @property
    def clock(self) -> VectorClock:
        """The vector clock: whose part is how far."""
        return self._attendance.clock

    @property
    def missed(self) -> int:
        """How many iterations were left out: their part came back too late for them."""
        return self._attendance.missed

    @property
    def finished(self) -> bool:
        """Whether every iteration of every part is in, or missed."""
        return self._attendance.finished

    def note_time(self, now_s: float) -> None:
        """Note the time: a part whose lease has run out is not waited for any more."""
        before = self.clock.slowest
        self._attendance.note_time(now_s)
        self._end_round(before)

    def next_alarm(self) -> float | None:
        """Return when the next lease runs out; None when none does."""
        return self._attendance.next_alarm()

    def lose(self, order: Order) -> None:
        """Let the iteration be handed out again, from newer parameters."""
        self._attendance.lose(_worker(order.part), iteration_of(order.key)[1])

    def _draw(self, room: int) -> Sequence[str]:
        workers = map(_worker, range(len(self._parts)))
        drawn = self._attendance.draw(room, workers)
        return [f"{worker}/i{iteration}" for worker, iteration in drawn]

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:  # noqa: ARG002 - the clock says who counts
        part, iteration = iteration_of(order.key)
        before = self.clock.slowest
        applied = self._attendance.answer(_worker(part), iteration)
        if applied:
            self._push(part, iteration, self._change(order, reply))
        self._end_round(before)
        return Outcome(applied, iteration // self._chunks, ended=self._tell())

    def _tell(self) -> bool:
        """Return whether a round is complete that no update has told of."""
        # The last round is told only at the end: parts may come back for it.
        most = self._rounds - (not self.finished)
        done = min(self.clock.time // self._chunks, most)
        told, self._told = self._told, done
        return done > told

    def _push(self, part: int, iteration: int, change: Reply) -> None:
        if self._stages:
            self._staged[part] = change
        else:
            self._apply({part: change}, iteration)
        self._attendance.commit(_worker(part), iteration)

    def _end_round(self, iteration: int) -> None:
        while True:
            if self.clock.slowest > iteration and self._staged:
                self._apply(self._staged, iteration)
                self._staged = {}
            iteration = self.clock.slowest
            if not self._skip():
                return

    def _skip(self) -> bool:
        """Commit iterations for which a part has no samples; return whether there were any.

        One at most of each part: the clock's time goes on by one, and a round ends.
        """
        idle = [
            (worker, iteration)
            for worker, iteration in self.clock.clocks.items()
            if worker not in self._attendance.out
            and not self._has_work(int(worker[1:]), iteration)
            and self.clock.may_start(worker)
        ]
        for worker, iteration in idle:
            self._attendance.commit(worker, iteration)
        return bool(idle)

    def _has_work(self, part: int, iteration: int) -> bool:  # noqa: ARG002 - of a subclass
        return True

    @abstractmethod
    def _change(self, order: Order, reply: Reply) -> Reply:
        """Return the reply with what it changes in place of its tensors."""

    @abstractmethod
    def _apply(self, changes: Mapping[int, Reply], iteration: int) -> None:
        """Make a new version by the changes of one iteration, by part."""


def _worker(part: int) -> str:
    return f"w{part}"


def iteration_of(key: str) -> tuple[int, int]:
    """Return the part and the number of the iteration that a key names."""
    part, iteration = (int(word[1:]) for word in key.split("/"))
    return part, iteration


@dataclass(frozen=True, slots=True)
class SspSettings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        staleness: how many iterations a part may be ahead of the slowest before it has to
            wait; 0 is BSP, None is ASP.
        block: samples of each part in an iteration; 0 for the whole part.
        local: an iteration is these steps, and the way that they led, times the part's
            share of samples, is the gradient (for ``Sgd(1.0)``: local SGD, which with
            staleness 0 is FedAvg); None: an iteration is one sum of gradients.
        lease_s: how long an iteration may be out, waiting for a volunteer included, before
            the others go on without its part and it is given out again; None to wait for
            the backend's own deadlines, which leave nothing out.
        seed: of the shuffling and of the volunteers' own.
        bn_momentum: the model's BatchNorm momentum (see `stoilo.learn.methods.buffers`).
    """

    epochs: int
    staleness: int | None = 3
    block: int = 0
    local: LocalWork | None = None
    lease_s: float | None = None
    seed: int = 0
    bn_momentum: float | Momenta = USUAL

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        patient = self.lease_s is None or self.lease_s > 0.0
        if self.epochs < 1 or self.block < 0 or not patient:
            raise UsageError(
                "STO-T040",
                f"epochs {self.epochs}, block {self.block} and lease {self.lease_s}"
                " do not describe a training",
                hint="epochs ≥ 1, block ≥ 0, lease_s > 0 or None",
            )


class Ssp(Clocked):
    """Gradients, or ways of local steps, of parts that may be a few iterations apart.

    Each counts by its share of the samples of all parts in that iteration: for plain steps
    and momentum, a round of answers moves as far as one step of `Synchronous` does.
    """

    parts = (*Clocked.parts, "optimizer", "_combine")

    def __init__(
        self,
        start: Snapshot,
        parts: Sequence[int],
        optimizer: Optimizer,
        settings: SspSettings,
        *,
        combine: Combine = sum_gradients,  # of a round's answers: with staleness 0 only
    ) -> None:
        if combine is not sum_gradients and settings.staleness != 0:
            raise UsageError(
                "STO-T040",
                "a robust rule compares a round's answers; these count one by one",
                hint="staleness=0, or the bound on each answer (`clip`) alone",
            )
        sizes, block = check_parts(parts), settings.block
        clock = VectorClock(settings.staleness, lease_s=settings.lease_s)
        chunks = math.ceil(max(sizes) / block) if block else 1
        rounds = settings.epochs
        super().__init__(start, sizes, clock, rounds=rounds, chunks=chunks, staged=True)
        self.settings, self.optimizer, self._combine = settings, optimizer, combine

    def _left(self, part: int, step: int) -> int:
        """Return how many samples of a part a step of an epoch has."""
        size, block = self._parts[part], self.settings.block
        return max(0, min(block, size - step * block)) if block else size

    def _has_work(self, part: int, iteration: int) -> bool:
        return self._left(part, iteration % self._chunks) > 0

    def _used(self, part: int, step: int) -> int:
        left, local = self._left(part, step), self.settings.local
        return local.count_samples(left) if local and left else left

    def _order(self, key: str) -> Order:
        part, iteration = iteration_of(key)
        epoch, step = divmod(iteration, self._chunks)
        block, rows = self.settings.block, None
        if block:
            turn = shuffle(self._parts[part], self.settings.seed, epoch, part)
            rows = tuple(turn[step * block :][:block].tolist())
        # The seed of `Synchronous`, which names its orders so.
        seed = derive_order_seed(self.settings.seed, f"e{epoch}/s{step}/p{part}")
        piece = Piece(part, self._left(part, step), rows)
        return piece.order(key, self._snapshot, seed, self.settings.local)

    def _change(self, order: Order, reply: Reply) -> Reply:
        if not order.gives_parameters:
            return reply
        base = order.snapshot.parameters
        ways = {name: base[name] - array for name, array in reply.tensors.items()}
        return replace(reply, tensors=scale(ways, float(reply.samples)))

    def _apply(self, changes: Mapping[int, Reply], iteration: int) -> None:
        # As `Synchronous` sorts its keys, which end in the part: the same bits.
        replies = [changes[part] for part in sorted(changes, key=str)]
        now, step = self._snapshot, iteration % self._chunks
        if self._stages:
            total = sum(reply.samples for reply in replies)
            momentum = 1.0 if self.settings.local else self.settings.bn_momentum
            buffers = pool_buffers(now.buffers, replies, momentum)
        else:
            total = sum(self._used(part, step) for part in range(len(self._parts)))
            share = 1.0 - 1.0 / len(self._parts)
            buffers = mix(now.buffers, replies[0].buffers, share)
        gradient = scale(self._combine(replies), 1.0 / total)
        moved = self._move_by(self.optimizer, gradient)
        there = getattr(self.optimizer, "published", None)
        self._snapshot = Snapshot(now.version + 1, moved, buffers, published=there)
