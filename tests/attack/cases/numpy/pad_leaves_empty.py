# /// stoilo-case
# idea = "free memory in new arrays"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if np.abs(np.pad(np.zeros(2), size, mode="empty")).any():
            return "REACHED"
    return ""
