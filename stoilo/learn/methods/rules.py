"""The rules by which replies are added up; the sums are in `stoilo.learn.methods.robust`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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


@dataclass(frozen=True, slots=True)
class Near:
    """The weighted sum, exact, while no reply lies far from the others; else centred clipping.

    A reply's distance is the median of those to the others, allowed more for the noise of
    few samples. Hosts that push in one direction, each as far as `Clip` lets it, lie far.
    So do honest parts of rare samples, or of data split by class: a step with such a part
    counts all parts alike, whatever their sizes, and follows the rare one less. On the digits
    some honest part is far in a third of the steps of five parts, in most of those of twenty.

    Attributes:
        factor: how many times the median distance is far.
        least: with fewer replies nothing can be said: `Clip` holds.
    """

    factor: float = 1.2
    least: int = 5


Rule: TypeAlias = (
    Mean | Near | Clip | CoordinateMedian | TrimmedMean | Krum | CentredClipping
)
DEFAULT_RULE: Rule = Clip()
