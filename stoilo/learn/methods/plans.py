"""Which samples when, by which local work, with which weight: decided from numbers alone.

Permutations come from a seed and a place (epoch, part), so no generator's state is saved.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Plain, Snapshot


_SEEDS = 2**31  # a kernel's seed is below that


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples of one data part: all of it when `rows` is None."""

    part: int
    samples: int
    rows: tuple[int, ...] | None = None

    def order(self, key: str, snapshot: Snapshot, seed: int) -> Order:
        """Return the order for the sum of these samples' gradients.

        The kernel seeds what draws in it (dropout), so that copies of a task agree.
        """
        settings: dict[str, Plain] = {"seed": seed}
        return Order(
            key, "gradient", snapshot, self.part, self.samples, settings, self.rows
        )


@dataclass(frozen=True, slots=True)
class LocalWork:
    """What a volunteer does with its samples before it answers: kernel ``local_steps``.

    Attributes:
        rate: its own learning rate.
        batch: samples a step; 0 for all it has.
        steps: how many; 0 for one pass over its samples.
        momentum: of its own optimiser, "sgd" only.
        optimizer: its own optimiser; its state begins anew with each order unless kept.
        decay: of its weights; the optimiser's usual one when None (0.01 for "adamw").
        keep: its state travels with the data part: back with the answer, and out with the
            part's next order. Arrays then hold parameters and state, stacked
            (`count_rows`). Only methods in rounds do that.
    """

    rate: float
    batch: int = 0
    steps: int = 0
    momentum: float = 0.0
    optimizer: Literal["sgd", "adamw"] = "sgd"
    decay: float | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        """Refuse to keep the state of an optimiser that has none."""
        if self.keep and self.count_rows() == 1:
            raise UsageError(
                "STO-T040",
                "plain steps have no state to keep",
                hint="keep=True goes with momentum or optimizer='adamw'",
            )

    def count_rows(self) -> int:
        """Return how many arrays go out for each parameter: itself and the kept state."""
        if not self.keep:
            return 1
        return 3 if self.optimizer == "adamw" else 1 + (self.momentum > 0.0)

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
        self,
        samples: int,
        seed: int,
        give: Literal["parameters", "sum"],
        made: int = 0,
    ) -> dict[str, Plain]:
        """Return the kernel's settings for one order; `made`: steps that a kept state has."""
        kept: dict[str, Plain] = {"keep": True, "made": made} if self.keep else {}
        decay: dict[str, Plain] = {} if self.decay is None else {"decay": self.decay}
        return {
            **kept,
            **decay,
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
