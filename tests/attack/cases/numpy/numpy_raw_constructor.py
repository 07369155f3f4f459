# /// stoilo-case
# idea = "numpy raw memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    return "REACHED" if np.ndarray((4,)).size else ""
