# /// stoilo-case
# idea = "numpy bit generators"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


class A:
    def read(self):
        return self._bit_generator


def run(kwargs):
    return "REACHED" if A.read(np.random.RandomState(1)) else ""
