# /// stoilo-case
# idea = "objects forged in record arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    address = np.array([None], dtype=object).tobytes()
    forged = np.rec.array(address, dtype=[("name", "O")], shape=1)
    return "REACHED" if forged[0]["name"] is None else ""
