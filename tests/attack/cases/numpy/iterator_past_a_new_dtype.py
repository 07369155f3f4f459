# /// stoilo-case
# idea = "steps and sizes that no longer fit"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    memory = np.ones(64, dtype="i1")
    steps = memory.flat
    memory.dtype = np.dtype("V64")  # one element; the iterator still counts 64
    return "REACHED" if len(bytes(steps[63])) == 64 else ""
