# /// stoilo-case
# idea = "numpy methods that write files"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# ///
import numpy as np


def run(kwargs):
    getattr(np.ones(3), "to" + "file")(kwargs["mark"])
    return ""
