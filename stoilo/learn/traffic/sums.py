"""Sums that come out the same in whatever order: whole numbers of a fixed step.

Floats added along a tree that differs each round differ in their last bits. Here each value
is rounded once, to a multiple of a step that all nodes share; from there on everything is
exact, so the sum at the root is the flat sum, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError

BITS = 62  # of an int64 that a whole sum may use


@dataclass(frozen=True, slots=True)
class Scale:
    """The step of a round: 2 ** -`bits`, for values below `bound` in so many parts."""

    bits: int
    bound: float
    parts: int

    @classmethod
    def fit(cls, bound: float, parts: int) -> Scale:
        """Return the finest step for `parts` vectors of values up to `bound`.

        Raises:
            UsageError: ``STO-T040``: no positive finite bound, or no part.
        """
        if not (0.0 < bound < math.inf and parts >= 1):
            raise UsageError(
                "STO-T040",
                f"no sum of {parts} parts bounded by {bound}",
                hint="a clipping norm bounds every value",
            )
        return cls(
            BITS - math.ceil(math.log2(parts)) - math.frexp(bound)[1], bound, parts
        )


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The sum of some contributions.

    Attributes:
        values: int64, multiples of the scale's step.
        samples: that they were made of; what a mean is divided by.
    """

    values: NDArray[np.int64]
    samples: int

    @classmethod
    def encode(
        cls, vector: NDArray[np.floating], samples: int, scale: Scale
    ) -> ExactSum:
        """Return one contribution, a sum over so many samples, in whole numbers.

        Raises:
            UsageError: ``STO-T040``: a value is not finite, or beyond the bound.
        """
        wide = np.asarray(vector, np.float64)
        if not np.all(np.abs(wide) <= scale.bound):  # NaN is not, either
            raise UsageError(
                "STO-T040",
                f"a value beyond {scale.bound}, which the round's sums are bounded by",
                hint="clip it, or give the round a larger bound",
            )
        return cls(np.rint(np.ldexp(wide, scale.bits)).astype(np.int64), samples)

    def __add__(self, other: ExactSum) -> ExactSum:
        """Return both together."""
        return ExactSum(self.values + other.values, self.samples + other.samples)

    def decode(self, scale: Scale) -> NDArray[np.float64]:
        """Return the sum as floats."""
        return np.ldexp(self.values.astype(np.float64), -scale.bits)
