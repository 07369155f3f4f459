"""Synchronous SGD with large minibatches (Goyal et al. 2017): linear scaling and warm-up.

One step over k·n samples, n from each of k data parts. The rate is k times that of one part
alone, reached gradually: it grows with every *step* of the whole run in the first epochs.

The rule has an upper limit, which depends on model and data: beyond some k no warm-up helps,
and training ends in chance (digits and a deep narrow net: 16 parts learn, 32 do not). All parts
count in one mean over k·n; BatchNorm's statistics are those of n samples, whatever k is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.methods.optimizers import Momentum, Optimizer, Sgd
from stoilo.learn.methods.plans import check_parts
from stoilo.learn.methods.synchronous import (
    Combine,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)


@dataclass(frozen=True, slots=True)
class Warmup:
    """The learning rate of each step, a `stoilo.learn.methods.synchronous.Schedule`.

    Attributes:
        base: rate of one part alone, η.
        scale: by how much it is multiplied, k.
        steps_per_epoch: of the whole run, not of one volunteer.
        epochs: that the warm-up lasts.
        kind: "gradual" from η to k·η; "constant" η, then k·η; "none".
        milestones: epochs at which the rate is divided by ten.
    """

    base: float
    scale: float
    steps_per_epoch: int
    epochs: float = 5.0
    kind: Literal["gradual", "constant", "none"] = "gradual"
    milestones: tuple[int, ...] = ()

    def __call__(self, step: int) -> float:
        """Return the rate of a step, from 0."""
        epoch = step / self.steps_per_epoch
        tenths = sum(epoch >= milestone for milestone in self.milestones)
        return self._climb(epoch) * 0.1**tenths

    def _climb(self, epoch: float) -> float:
        full = self.base * self.scale
        if self.kind == "none" or epoch >= self.epochs:
            return full
        if self.kind == "constant":
            return self.base
        return self.base + (full - self.base) * epoch / self.epochs


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
