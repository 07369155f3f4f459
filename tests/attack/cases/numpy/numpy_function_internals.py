# /// stoilo-case
# idea = "numpy function internals"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    return "REACHED" if np.linalg.norm._implementation else ""
