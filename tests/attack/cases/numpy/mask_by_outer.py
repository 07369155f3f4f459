# /// stoilo-case
# idea = "free memory behind a mask"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if np.add.outer(np.ones(size), [1.0], where=False).any():
            return "REACHED"
    return ""
