# /// stoilo-case
# idea = "numpy files"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    return "REACHED" if np.zeros(1).tofile else ""
