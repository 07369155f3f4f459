# expect: refused STO-G101
# level: numeric
import numpy as np


def run(kwargs):
    return "ESCAPED" if np.random.default_rng(1).bit_generator.ctypes else ""
