# /// stoilo-case
# idea = "numpy methods that write files"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# ///
from operator import methodcaller

import numpy as np


def run(kwargs):
    methodcaller("tofile", kwargs["mark"])(np.ones(3))
    return ""
