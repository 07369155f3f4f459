# /// stoilo-case
# idea = "numpy methods that write files"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# ///
import numpy as np


def run(kwargs):
    np.ma.ones(3).dump(kwargs["mark"])
    return ""
