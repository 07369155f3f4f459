# /// stoilo-case
# idea = "numpy raw memory"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        left = np.add(np.ones(size), 1, where=np.zeros(size, bool))
        if left.any():
            return "REACHED"
    return ""
