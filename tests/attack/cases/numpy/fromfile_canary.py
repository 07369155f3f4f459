# /// stoilo-case
# idea = "numpy files"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import numpy as np


def run(kwargs):
    return np.fromfile(kwargs["canary"], dtype="u1").tobytes().decode()
