"""Learning rates that change as a training goes on: number of the update → factor.

A factor multiplies what the settings or the optimiser name as the rate: of the volunteers'
local steps in an order, and of the trainer's optimiser in a step. It depends on the number
of updates made before alone, which every checkpoint holds: after a kill it is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

# Updates made before (the version of the parameters, from 0) → factor of the rate.
Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """From `start` up to 1 in a straight line, then `then`, which counts from there.

    Attributes:
        updates: that it lasts.
        start: first factor.
        then: what follows; 1 when None.
    """

    updates: int
    start: float = 0.1
    then: Schedule | None = None

    def __post_init__(self) -> None:
        """Refuse a warm-up that is none."""
        _check(self.updates >= 1 and 0.0 <= self.start <= 1.0, self)

    def __call__(self, update: int) -> float:
        """Return the factor of an update's rate."""
        if update >= self.updates:
            return self.then(update - self.updates) if self.then else 1.0
        return self.start + (1.0 - self.start) * update / self.updates


@dataclass(frozen=True, slots=True)
class StepDecay:
    """`by` times the factor before, each `every` updates."""

    every: int
    by: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what never changes, or grows without end."""
        _check(self.every >= 1 and 0.0 < self.by <= 1.0, self)

    def __call__(self, update: int) -> float:
        """Return the factor of an update's rate."""
        return self.by ** (update // self.every)


@dataclass(frozen=True, slots=True)
class Cosine:
    """Half a cosine from 1 down to `least` in so many updates; it stays there."""

    updates: int
    least: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a curve without length."""
        _check(self.updates >= 1 and 0.0 <= self.least <= 1.0, self)

    def __call__(self, update: int) -> float:
        """Return the factor of an update's rate."""
        turn = math.pi * min(update, self.updates) / self.updates
        return self.least + (1.0 - self.least) * (1.0 + math.cos(turn)) / 2.0


@dataclass(frozen=True)
class TorchSchedule:
    """The rates of a scheduler of torch's, stepped once an update, as factors.

    Attributes:
        kind: its class, for example ``torch.optim.lr_scheduler.CosineAnnealingLR``.
        options: its keyword arguments.
        rate: the optimiser's rate, which absolute ones (``eta_min``, ``max_lr``) go with.

    Raises:
        UsageError: ``STO-T040`` for one that needs more than the number of the update
            (``ReduceLROnPlateau``), or that moves a momentum, too.
    """

    kind: type[LRScheduler]
    options: Mapping[str, Any]
    rate: float
    _rates: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be played from the first update on."""
        self(1)

    def __call__(self, update: int) -> float:
        """Return the factor of an update's rate."""
        if update >= len(self._rates):
            # Played from the beginning: a scheduler knows the step before only. Twice as
            # far as asked, so that a long training plays it a few times in all.
            self._rates[:] = self._play(2 * update + 64)
        return self._rates[min(update, len(self._rates) - 1)] / self.rate

    def _play(self, updates: int) -> list[float]:
        import torch  # noqa: PLC0415 - only with a scheduler of torch's

        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=self.rate)
        rates: list[float] = []
        try:
            scheduler = self.kind(optimizer, **self.options)
            for _ in range(updates):
                rates.append(float(optimizer.param_groups[0]["lr"]))
                optimizer.step()
                scheduler.step()
        except (TypeError, ValueError) as error:
            # Some end themselves (`OneCycleLR` after total_steps): the last rate stays.
            if len(rates) > 1 and isinstance(error, ValueError):
                return rates
            raise UsageError(
                "STO-T040",
                f"{self.kind.__name__} cannot be used here: {str(error)[:120]}",
                hint="one that goes by the number of steps, and by the rate alone",
            ) from None
        return rates


def read_factor(schedule: Schedule | None, update: int) -> float:
    """Return an update's factor; raises ``STO-T040`` unless it is finite and ≥ 0."""
    factor = 1.0 if schedule is None else float(schedule(update))
    if not 0.0 <= factor < math.inf:
        raise UsageError(
            "STO-T040", f"the schedule gives {factor} as the factor of update {update}"
        )
    return factor


def _check(fits: bool, schedule: object) -> None:
    if not fits:
        raise UsageError(
            "STO-T040",
            f"{schedule} is no schedule",
            hint="whole numbers ≥ 1, factors from 0 to 1",
        )


@dataclass(frozen=True, slots=True)
class Warmup:
    """The learning rate of each step, as large minibatches have it: a rate, no factor."""

    base: float  # rate of one part alone, η
    scale: float  # by how much it is multiplied, k
    steps_per_epoch: int  # of the whole run, not of one volunteer
    epochs: float = 5.0  # that the warm-up lasts
    # "gradual" from η to k·η; "constant" η, then k·η; "none"
    kind: Literal["gradual", "constant", "none"] = "gradual"
    milestones: tuple[int, ...] = ()  # epochs at which the rate is divided by ten

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
