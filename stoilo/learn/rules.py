"""The rules by which replies are added up; `stoilo.learn.robust` carries them out.

Sources: Yin et al. 2018 (coordinate median, trimmed mean), Blanchard et al. 2017 (Krum),
Karimireddy et al. 2021 (centred clipping).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "DEFAULT_RULE",
    "CentredClipping",
    "Clip",
    "CoordinateMedian",
    "Krum",
    "Mean",
    "Rule",
    "TrimmedMean",
]


@dataclass(frozen=True, slots=True)
class Mean:
    """The plain weighted sum of all finite replies: one wrong reply spoils it."""


@dataclass(frozen=True, slots=True)
class Clip:
    """The weighted sum, each reply's mean shortened to `factor` times a running median norm.

    A reply of few samples may have a longer mean, by as much as it has fewer samples than
    the median reply: the mean of few varies more, and it counts for less. So no reply
    changes the sum by more than `factor` times what a usual one does.

    Attributes:
        factor: how many times the median an honest norm may be.
        least: below so many known norms a median says nothing: nothing is shortened.
    """

    factor: float = 3.0
    least: int = 3


@dataclass(frozen=True, slots=True)
class CoordinateMedian:
    """The median of each coordinate alone; bounded while fewer than half are wrong."""


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each coordinate without the `share` lowest and the `share` highest."""

    share: float = 0.2


@dataclass(frozen=True, slots=True)
class Krum:
    """The reply that lies nearest to its neighbours (the mean of the `chosen` nearest).

    Attributes:
        wrong: how many wrong replies it must stand; a fifth of them when None.
        chosen: how many replies count.
    """

    wrong: int | None = None
    chosen: int = 1


@dataclass(frozen=True, slots=True)
class CentredClipping:
    """The last step's result, moved by the replies' differences cut at `radius`.

    Attributes:
        radius: largest distance that counts; the median distance when None.
        rounds: how often the centre is moved.
    """

    radius: float | None = None
    rounds: int = 3


Rule: TypeAlias = Mean | Clip | CoordinateMedian | TrimmedMean | Krum | CentredClipping
DEFAULT_RULE: Rule = Clip()
