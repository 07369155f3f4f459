# /// stoilo-case
# idea = "addresses in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    record = np.zeros(1, dtype=[("name", "O")])
    return "REACHED" if any(record[0].tobytes() + record.tobytes()) else ""
