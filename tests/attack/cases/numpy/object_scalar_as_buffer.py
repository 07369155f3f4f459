# /// stoilo-case
# idea = "addresses in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    record = np.zeros(1, dtype=[("n", "i4"), ("name", "O")])
    return "REACHED" if any(bytes(record[0])[4:]) else ""
