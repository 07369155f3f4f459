# /// stoilo-case
# idea = "free memory behind a mask, by helpers"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
from functools import lru_cache

import numpy as np


def run(kwargs):
    root = np.errstate(all="ignore")(np.sqrt)
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if root(np.ones(size), where=False).any():
            return "REACHED"
    cached = lru_cache(np.add)
    return "REACHED" if any(cached(1.0, x, where=False) for x in range(99)) else ""
