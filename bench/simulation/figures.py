"""What arithmetic expects of a policy, and how far a count can be trusted. Pure.

`f` is the share of copies that went to cheats, all of one mind; `c` the share of work that
they falsify; `r` the share of results that are checked. A researcher sees nothing of `f`:
these are figures for choosing a policy, not a promise about a project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Estimate",
    "detected_after",
    "first_to",
    "inverse",
    "mean",
    "share",
    "third_copies",
]

Z: Final = 1.96
"""Half width of a 95 % interval, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value with its 95 % interval."""

    value: float
    low: float
    high: float

    def holds(self, expected: float, sigmas: float = Z) -> bool:
        """Say whether a value lies within so many standard deviations."""
        below = (self.value - self.low) * sigmas / Z
        above = (self.high - self.value) * sigmas / Z
        return self.value - below <= expected <= self.value + above


def share(count: int, of: int) -> Estimate:
    """Return a share with Wilson's interval, which holds for rare things too."""
    if not of:
        return Estimate(0.0, 0.0, 1.0)
    p, square = count / of, Z * Z
    centre = (p + square / (2 * of)) / (1 + square / of)
    half = Z * math.sqrt(p * (1 - p) / of + square / (4 * of * of)) / (1 + square / of)
    return Estimate(p, max(0.0, min(p, centre - half)), max(p, centre + half))


def inverse(estimate: Estimate) -> Estimate:
    """Return 1/x: of a chance, how many tries it takes on average."""
    value, low, high = (
        1 / part if part else math.inf
        for part in (estimate.value, estimate.high, estimate.low)
    )
    return Estimate(value, low, high)


def mean(values: Iterable[int]) -> Estimate:
    """Return a mean with its normal interval."""
    every = list(values)
    count = len(every)
    if not count:
        return Estimate(0.0, 0.0, 0.0)
    middle = sum(every) / count
    spread = math.sqrt(sum((one - middle) ** 2 for one in every) / max(1, count - 1))
    half = Z * spread / math.sqrt(count)
    return Estimate(middle, middle - half, middle + half)


def first_to(quorum: int, f: float) -> float:
    """Return the chance that `quorum` cheats come before `quorum` honest hosts.

    With one more copy after each disagreement this is what a quorum comes to: f²(3-2f)
    for 2, and for 3 the majority of five. Only while the first two copies alone decide is
    it the f² of a pair.
    """
    return sum(
        math.comb(quorum - 1 + honest, honest) * f**quorum * (1 - f) ** honest
        for honest in range(quorum)
    )


def third_copies(f: float) -> float:
    """Return how many copies a quorum of 2 adds after disagreement: the third decides."""
    return 2 * f * (1 - f)


def detected_after(r: float, c: float, honest: float = 1.0) -> float:
    """Return after how many results a cheat is caught on average: 1/(r·c).

    Args:
        r: chance that a result is checked.
        c: share that the cheat falsifies.
        honest: chance that a check finds out: 1 on the project's own machines.
    """
    chance = r * c * honest
    return 1 / chance if chance else math.inf
