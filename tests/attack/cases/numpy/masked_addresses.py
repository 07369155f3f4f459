# /// stoilo-case
# idea = "addresses in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    data, mask = np.ma.ones(3).ids()
    return "REACHED" if data else ""
