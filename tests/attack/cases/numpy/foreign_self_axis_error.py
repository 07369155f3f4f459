# /// stoilo-case
# idea = "library members that write on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# level = "numeric"
# wider = true
# ///
import numpy as np


def run(kwargs):
    np.exceptions.AxisError.__init__(np.add, 1, 2)
    return "REACHED" if np.add.axis == 1 else ""
