# /// stoilo-case
# idea = "numpy raw memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    a = np.zeros(1)
    a.resize(4, refcheck=False)
    return "REACHED"
