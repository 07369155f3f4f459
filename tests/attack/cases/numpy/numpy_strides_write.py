# /// stoilo-case
# idea = "numpy strides"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    a = np.zeros(4)
    a.strides = (8,)
    return "REACHED"
