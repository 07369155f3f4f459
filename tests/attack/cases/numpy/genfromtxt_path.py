# /// stoilo-case
# idea = "paths handed to numpy"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# ///
import numpy as np


def run(kwargs):
    return str(np.genfromtxt(kwargs["canary"], dtype=str))
