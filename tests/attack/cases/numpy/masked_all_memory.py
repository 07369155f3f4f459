# /// stoilo-case
# idea = "free memory in new arrays"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy.ma as ma
import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        for fresh in (ma.masked_all(size), ma.empty(size), ma.empty_like(np.ones(size))):
            if np.asarray(fresh).any():
                return "REACHED"
    return ""
