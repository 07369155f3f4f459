# /// stoilo-case
# idea = "objects forged in object arrays"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    target = np.array(["text"], dtype=object)
    words = np.frombuffer(target, dtype=np.uintp)
    words[0] = np.frombuffer(np.array([None], dtype=object), dtype=np.uintp)[0]
    return "REACHED" if target[0] is None else ""
