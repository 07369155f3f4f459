# /// stoilo-case
# idea = "raw constructor by returned classes"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    for size in (3, 100, 1000):
        dirty = [np.full(size, 7.5) for _ in range(100)]
        del dirty
        if bytes(np.char.chararray((size,), itemsize=8)).strip(b"\0"):
            return "REACHED"
    return ""
