# /// stoilo-case
# idea = "packed strings forged"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    words = np.array(["a" * 200, "b"], dtype="T")
    lengths = np.frombuffer(words, dtype=np.uint64)
    lengths[1] = lengths[1] + 1000
    return "REACHED" if lengths.size else ""
