"""When a training ends before its epochs are done: a target, or patience at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stoilo.core.errors import UsageError
from stoilo.learn.trainers.metrics import EpochMetrics

__all__ = ["StopRule"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """The test after each epoch; the most epochs are the settings' own.

    Attributes:
        target: end as soon as the watched number is so good; None for never.
        patience: end after so many epochs in a row that are no better than the best one
            before them; None for never.
        watch: "loss", the smaller the better, or another number of `Evaluation`
            (``accuracy``), the larger the better. It is read from the held-out data, of
            which no volunteer says anything; where there is none, the loss is the median
            over the epoch's answers of their mean losses, which they only claim.
        least_gain: by how much an epoch must be better to count as better.
    """

    target: float | None = None
    patience: int | None = None
    watch: str = "loss"
    least_gain: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a rule that never stops, or always."""
        patient = self.patience is None or self.patience >= 1
        finite = self.target is None or math.isfinite(self.target)
        unused = self.target is None and self.patience is None
        if unused or not patient or not finite or not self.least_gain >= 0.0:
            raise UsageError(
                "STO-T085",
                f"target {self.target}, patience {self.patience} and least gain"
                f" {self.least_gain} stop no training",
                hint="a finite target or a patience ≥ 1; least_gain ≥ 0",
            )

    def is_reached(self, epochs: Sequence[EpochMetrics]) -> bool:
        """Say whether a training with these epochs ends now.

        Raises:
            UsageError: ``STO-T085`` when the last epoch has not the watched number.
        """
        if not epochs:
            return False
        goodness = [self._goodness(epoch) for epoch in epochs]
        if self.target is not None and goodness[-1] >= self._signed(self.target):
            return True
        return self.patience is not None and self._stalled(goodness) >= self.patience

    def _stalled(self, goodness: Sequence[float]) -> int:
        """Return how many epochs in a row have not been better than the best before."""
        best, since = -math.inf, 0
        for one in goodness:
            if one > best + self.least_gain:
                best, since = one, 0
            else:
                since += 1
        return since

    def _signed(self, value: float) -> float:
        return -value if self.watch == "loss" else value

    def _goodness(self, epoch: EpochMetrics) -> float:
        """Return the watched number, the larger the better; not finite is the worst."""
        source: object = epoch.held_out
        found = getattr(source, self.watch, None)
        if source is None and self.watch == "loss":
            median = epoch.median_loss
            found = epoch.average_loss if median is None else median
        if not isinstance(found, int | float):
            raise UsageError(
                "STO-T085",
                f"epoch {epoch.epoch} has no {self.watch} to stop by",
                hint='watch="loss", or give held_out data and a model that counts',
            )
        return self._signed(float(found)) if math.isfinite(found) else -math.inf
