# /// stoilo-case
# idea = "addresses in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    secret = object()
    raw = memoryview(np.array([secret], dtype=object)).tobytes()
    return "REACHED" if any(raw) else ""
