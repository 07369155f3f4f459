# expect: refused STO-G101
# level: numeric
import numpy as np


class A:
    def read(self):
        return self._bit_generator


def run(kwargs):
    return "ESCAPED" if A.read(np.random.RandomState(1)) else ""
