"""Sums and means without one place for all: in regions, or between pairs of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stoilo.learn.core.orders import Reply
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Tensors
from stoilo.learn.methods.synchronous import Combine, sum_gradients


class Regional(Stateful):
    """A sum in two levels: of each region's answers, then of the regions.

    A region's sum is made of checked answers in the order of their keys, the root's in the
    order of regions, all in doubles: the same bits whatever comes first, and the flat sum but
    for the order of additions. Samples are counted where they are, so weights are exact.

    Attributes:
        regions: how many; answers are cut into runs of nearly equal length.
        combine: how a region adds up, a robust rule for example; its memory is common.
    """

    parts = ("combine",)

    def __init__(self, regions: int, combine: Combine = sum_gradients) -> None:
        self.regions, self.combine = regions, combine

    def __call__(self, replies: Sequence[Reply]) -> Tensors:
        """Return the sum of the regions' sums."""
        cuts = np.array_split(np.arange(len(replies)), self.regions)
        groups = [[replies[index] for index in cut] for cut in cuts if len(cut)]
        sums = [replace(group[0], tensors=self.combine(group)) for group in groups]
        return sum_gradients(sums)
