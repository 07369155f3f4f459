# /// stoilo-case
# idea = "numpy strides"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
from numpy.lib.stride_tricks import as_strided
import numpy as np


def run(kwargs):
    return "REACHED" if as_strided(np.zeros(1), (9,), (8,)).size else ""
