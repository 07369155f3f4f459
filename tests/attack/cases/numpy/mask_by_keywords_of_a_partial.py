# /// stoilo-case
# idea = "masks that are added later"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from functools import partial

import numpy as np


def run(kwargs):
    root = partial(np.sqrt)
    root.keywords["where"] = False
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if root(np.ones(size)).any():
            return "REACHED"
    return ""
