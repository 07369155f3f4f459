"""Mini-batches, the same for arrays and for torch."""

from __future__ import annotations

import numpy as np

__all__ = ["deal"]


def deal(count, size, seed):
    """Yield index arrays of mini-batches: a permutation dealt in order, then a new one."""
    shuffler = np.random.Generator(np.random.PCG64(seed))
    while True:
        order = shuffler.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size]
