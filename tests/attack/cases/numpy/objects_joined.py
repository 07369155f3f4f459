# /// stoilo-case
# idea = "addresses in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    raw = b"".join([np.array([object()], dtype=object)])
    return "REACHED" if any(raw) else ""
