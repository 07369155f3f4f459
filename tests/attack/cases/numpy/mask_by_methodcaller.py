# /// stoilo-case
# idea = "free memory behind a mask, by helpers"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
from operator import methodcaller

import numpy as np


def run(kwargs):
    outer = methodcaller("outer", np.ones(100), [1.0], where=False)
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if outer(np.add).any():
            return "REACHED"
    return ""
