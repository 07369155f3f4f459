# /// stoilo-case
# idea = "raw constructor by returned classes"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    array = np.ma.ones(3).baseclass
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if array((size,)).any():
            return "REACHED"
    return ""
