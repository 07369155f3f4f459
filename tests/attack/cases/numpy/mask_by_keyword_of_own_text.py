# /// stoilo-case
# idea = "keywords of the task's own class"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


class Word(str):
    def __hash__(self):
        return 1

    def __eq__(self, other):
        return str(other) == str(self)


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if np.sqrt(np.ones(size), **{Word("where"): False}).any():
            return "REACHED"
    return ""
