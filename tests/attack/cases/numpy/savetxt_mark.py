# /// stoilo-case
# idea = "paths handed to numpy"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# ///
import numpy as np


def run(kwargs):
    np.savetxt(kwargs["mark"], np.ones(3))
    return ""
