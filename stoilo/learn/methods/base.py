"""What all methods have in common: the newest version, and an account of each answer."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import (
    Order,
    Reply,
    Snapshot,
    Update,
)
from stoilo.learn.core.states import Plain, State, Stateful, unfit
from stoilo.learn.core.tensors import Array, Tensors, forms_of
from stoilo.learn.methods.optimizers import Optimizer
from stoilo.learn.methods.schedules import Schedule, read_factor

_SEEDS = 2**31  # a kernel's seed is below that


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples of one data part: all of it when `rows` is None."""

    part: int
    samples: int
    rows: tuple[int, ...] | None = None

    def order(
        self, key: str, snapshot: Snapshot, seed: int, local: LocalWork | None = None
    ) -> Order:
        """Return the order for the sum of these samples' gradients, or for local steps.

        The kernel seeds what draws in it (dropout), so that copies of a task agree.
        """
        kernel, used, settings = "gradient", self.samples, dict[str, Plain](seed=seed)
        if local is not None:
            kernel, used = "local_steps", local.count_samples(self.samples)
            settings = local.render(self.samples, seed, "parameters")
        return Order(key, kernel, snapshot, self.part, used, settings, self.rows)


@dataclass(frozen=True, slots=True)
class LocalWork:
    """What a volunteer does with its samples before it answers: kernel ``local_steps``.

    Attributes:
        rate: its own learning rate.
        batch: samples a step; 0 for all it has.
        steps: how many; 0 for one pass over its samples.
        momentum: of its own optimiser, "sgd" only.
        optimizer: its own optimiser; its state begins anew with each order.
        decay: of its weights; the optimiser's usual one when None (0.01 for "adamw").
        proximal: FedProx's μ: each gradient is of the loss plus ``μ/2·|w - w₀|²``, with w₀
            what the order brought: parts that differ pull less far apart.
    """

    rate: float
    batch: int = 0
    steps: int = 0
    momentum: float = 0.0
    optimizer: Literal["sgd", "adamw"] = "sgd"
    decay: float | None = None
    proximal: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a term that would push away."""
        if not 0.0 <= self.proximal < math.inf:
            raise UsageError(
                "STO-T040", f"the proximal term's factor is {self.proximal}, not ≥ 0"
            )

    def count_steps(self, samples: int) -> int:
        """Return how many steps an order with so many samples makes."""
        return self.steps or (math.ceil(samples / self.batch) if self.batch else 1)

    def count_samples(self, samples: int) -> int:
        """Return how many samples those steps use, repetitions counted."""
        if not self.steps:
            return samples
        batch = min(self.batch, samples) if self.batch else samples
        return sum(self._deal(samples, batch))

    def _deal(self, samples: int, batch: int) -> list[int]:
        """Return the sizes of the batches: the last one of a pass may be smaller."""
        one_pass = [min(batch, samples - start) for start in range(0, samples, batch)]
        return [one_pass[step % len(one_pass)] for step in range(self.steps)]

    def render(
        self, samples: int, seed: int, give: Literal["parameters", "sum"]
    ) -> dict[str, Plain]:
        """Return the kernel's settings for one order."""
        further: dict[str, Plain] = {} if self.decay is None else {"decay": self.decay}
        if self.proximal:
            further["proximal"] = self.proximal
        return {
            **further,
            "steps": self.count_steps(samples),
            "batch": self.batch,
            "rate": self.rate,
            "momentum": self.momentum,
            "optimizer": self.optimizer,
            "seed": seed,
            "give": give,
        }


@dataclass(frozen=True, slots=True)
class Staleness:
    """What an answer from an older version is worth.

    Attributes:
        policy: "apply" in full, "damp" by 1/(1 + staleness), or "discard" beyond `limit`.
        limit: versions; beyond it nothing is applied under any policy (None: no limit).
    """

    policy: Literal["apply", "damp", "discard"] = "apply"
    limit: int | None = None

    def __post_init__(self) -> None:
        """Refuse a discarding policy without a limit: it would discard nothing."""
        if self.policy == "discard" and self.limit is None:
            raise UsageError(
                "STO-T040",
                "policy 'discard' needs a limit: the staleness beyond which to discard",
            )

    def weigh(self, staleness: int) -> float:
        """Return the factor of an answer so many versions old; 0 discards it."""
        if self.limit is not None and staleness > self.limit:
            return 0.0
        return 1.0 / (1.0 + staleness) if self.policy == "damp" else 1.0


APPLY = Staleness()


def check_parts(parts: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the data parts; raise ``STO-T040`` unless each has samples."""
    if not parts or min(parts) < 1:
        raise UsageError(
            "STO-T040",
            f"training needs data parts of at least one sample each, not {list(parts)[:9]}",
        )
    return tuple(parts)


def shuffle(size: int, *place: int) -> NDArray[np.int64]:
    """Return a permutation of ``range(size)`` that depends on the place alone."""
    return _generate(place).permutation(size)


def derive_seed(*place: int) -> int:
    """Return a kernel's seed for a place (run's seed, epoch, part)."""
    return int(_generate(place).integers(_SEEDS))


def _generate(place: tuple[int, ...]) -> np.random.Generator:
    if min(place) < 0:
        raise UsageError("STO-T040", f"a seed cannot be negative: {min(place)}")
    # Named, not numpy's default, which may change between its versions.
    return np.random.Generator(np.random.PCG64(place))


def derive_order_seed(seed: int, key: str) -> int:
    """Return a kernel's seed for an order: of the run's seed and the order's key."""
    # Python's own hash of a text differs from process to process.
    digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEEDS


def round_up(share: float, size: int) -> int:
    """Return that share of `size`, rounded up, against rounding errors of the share."""
    # As binary fractions go: 0.7 of 10 is 7, not 8.
    return min(size, max(1, math.ceil(share * size - 1e-9)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer did to a method."""

    applied: bool  # whether it counted
    epoch: int  # number of the epoch that it belongs to, from 0
    ended: bool = False  # whether that epoch is complete now
    # Keys of orders that are out and hold up nothing any more
    late: tuple[str, ...] = ()
    # Keys of orders that are out and whose answers would not count
    given_up: tuple[str, ...] = ()
    # Keys of answers that stayed at the place and are named no more
    spent: tuple[str, ...] = ()


class MethodBase(Stateful, ABC):
    """A `stoilo.learn.core.orders.Method` whose rules a subclass brings.

    It says which keys are to be given out (`_draw`), what a key's order is (`_order`), what
    an answer does (`_count`), and what beside the newest version it keeps (`kept`, `parts`).
    """

    kept = Stateful.kept | {"_snapshot": Snapshot}
    schedule: Schedule | None = None  # of every rate; whoever makes the method sets it

    def __init__(self, start: Snapshot) -> None:
        self._snapshot = start

    @property
    def factor(self) -> float:
        """The schedule's factor of the next update."""
        return read_factor(self.schedule, self._snapshot.version)

    def _move_by(self, optimizer: Optimizer, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after the optimiser's step at its rate times `factor`."""
        rate = optimizer.rate
        optimizer.rate = rate * self.factor
        try:
            return optimizer.step(self._snapshot.parameters, gradient)
        finally:
            # What is saved is the rate itself: factors must not pile up over a kill.
            optimizer.rate = rate

    def _rated(self, order: Order) -> Order:
        rate = order.settings.get("rate")
        if self.schedule is None or not isinstance(rate, int | float):
            return order
        return replace(order, settings={**order.settings, "rate": rate * self.factor})

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing is left to be ordered; what is still out no longer matters."""

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return at most `room` further orders; none when it must wait for replies."""
        if self.finished:
            return []
        return [self._rated(self._order(key)) for key in self._draw(room)]

    def take(self, order: Order, reply: Reply) -> Update:
        """Let the first answer to an order count, unless it comes too late."""
        staleness = self._snapshot.version - reply.version
        outcome = self._count(order, reply, staleness)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=outcome.applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=staleness,
            epoch=outcome.epoch,
            epoch_ended=outcome.ended,
            late=outcome.late,
            given_up=outcome.given_up,
            spent=outcome.spent,
        )

    @abstractmethod
    def lose(self, order: Order) -> None:
        """Give the order's work out again, unless it no longer matters."""

    def note_time(self, now_s: float) -> None:
        """Note the time; see `Method.note_time`."""

    def next_alarm(self) -> float | None:
        """Return None: nothing runs out here."""
        return None

    def note_saved(self) -> None:
        """Note that the checkpoint is written; see `Method.note_saved`."""

    def load(self, state: State) -> None:
        """Go on from a saved state.

        Raises:
            UsageError: ``STO-T012`` when it is of another method or model.
        """
        before = self._snapshot
        super().load(state)
        # Blobs are not kept for ever; the next version's are there again.
        self._snapshot = replace(self._snapshot, published=None)
        for group in ("parameters", "buffers"):
            ours, saved = getattr(before, group), getattr(self._snapshot, group)
            if forms_of(saved) != forms_of(ours):
                raise unfit(f"its {group} have other names, types or shapes")

    @abstractmethod
    def _draw(self, room: int) -> Sequence[str]:
        """Return the keys of what goes out now."""

    @abstractmethod
    def _order(self, key: str) -> Order:
        """Return the order of a key that was drawn."""

    @abstractmethod
    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        """Let an answer count; `staleness` in versions."""


class Ledger(Stateful):
    """The keys of one round."""

    kept = Stateful.kept | {
        "_waiting": list[str],
        "_out": dict[str, int],
        "_done": list[str],
    }

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._waiting = list(keys)
        self._out: dict[str, int] = {}  # copies; the oldest first
        self._done: list[str] = []

    @property
    def size(self) -> int:
        """How many keys the round has."""
        return len(self._waiting) + len(self._out) + len(self._done)

    @property
    def answered(self) -> int:
        """How many keys are answered."""
        return len(self._done)

    @property
    def outstanding(self) -> tuple[str, ...]:
        """Keys that are out, the oldest first."""
        return tuple(self._out)

    def draw(self, room: int) -> list[str]:
        """Return at most `room` keys to give out now."""
        drawn, self._waiting = (
            self._waiting[: max(room, 0)],
            self._waiting[max(room, 0) :],
        )
        self._out |= dict.fromkeys(drawn, 1)
        return drawn

    def draw_backups(self, room: int, share: float, copies: int = 2) -> list[str]:
        """Return the oldest keys that are out, near the round's end, to give out again.

        Args:
            room: at most so many.
            share: only when not more than this share of the round is unanswered.
            copies: most copies of one key, the first included.
        """
        if self._waiting or len(self._out) > share * self.size:
            return []
        # The oldest first: most likely their hosts are slow or gone.
        oldest = [key for key, out in self._out.items() if out < copies]
        drawn = oldest[: max(room, 0)]
        for key in drawn:
            self._out[key] += 1
        return drawn

    def draw_all(self, room: int, share: float) -> list[str]:
        """Return keys to give out now and, with a share, then backup copies."""
        keys = self.draw(room)
        return keys + self.draw_backups(room - len(keys), share) if share else keys

    def answer(self, key: str) -> bool:
        """Note an answer; return whether it is the first to a key of this round."""
        if self._out.pop(key, 0) == 0:
            return False
        self._done.append(key)
        return True

    def reopen(self, key: str) -> None:
        """Let a key that was answered be given out again."""
        self._done.remove(key)
        self._waiting.append(key)

    def lose(self, key: str) -> None:
        """Note that one copy is lost; the key waits again when none is left."""
        if key not in self._out:
            return
        self._out[key] -= 1
        if self._out[key] == 0:
            del self._out[key]
            # To the back: a key that fails again and again must not hold up the others.
            self._waiting.append(key)
