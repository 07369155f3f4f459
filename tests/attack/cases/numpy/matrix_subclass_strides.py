# /// stoilo-case
# idea = "numpy strides"
# level = "numeric"
# stopped_by = "language"
# goal = "inside"
# ///
import numpy as np


class Wide(np.matrix):
    def widen(self):
        self.strides = (4096, 4096)
        return self[1, 1]


def run(kwargs):
    wide = Wide([[1, 2], [3, 4]])
    wide.strides = (8, 8)
    return "REACHED"
