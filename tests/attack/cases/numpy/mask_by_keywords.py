# /// stoilo-case
# idea = "free memory behind a mask"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    options = {"wh" + "ere": False}
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if np.add(np.ones(size), 1, **options).any():
            return "REACHED"
    return ""
