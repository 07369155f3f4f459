# /// stoilo-case
# idea = "numpy bit generators"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    return "REACHED" if np.random.default_rng(1).bit_generator.ctypes else ""
