# /// stoilo-case
# idea = "numpy files"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P041"
# goal = "inside"
# ///
import io

import numpy as np


def run(kwargs):
    return "REACHED" if np.load else ""
