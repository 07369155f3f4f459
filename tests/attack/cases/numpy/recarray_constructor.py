# /// stoilo-case
# idea = "raw constructor by returned classes"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    kind = type(np.rec.fromrecords([(1, 2.0)]))
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if kind((size,), dtype=[("x", "f8")]).x.any():
            return "REACHED"
    return ""
