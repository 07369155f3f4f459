# /// stoilo-case
# idea = "free memory behind a mask, by helpers"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import operator

import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if operator.call(np.add, np.ones(size), 1, where=False).any():
            return "REACHED"
        if np.apply_along_axis(np.square, 0, np.ones(size), where=False).any():
            return "REACHED"
    return ""
