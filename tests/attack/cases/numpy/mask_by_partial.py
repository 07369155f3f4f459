# /// stoilo-case
# idea = "free memory behind a mask"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
from functools import partial

import numpy as np


def run(kwargs):
    add = partial(np.add, where=False)
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if add(np.ones(size), 1).any():
            return "REACHED"
    return ""
