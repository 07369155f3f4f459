# /// stoilo-case
# idea = "numpy files"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import numpy as np


def run(kwargs):
    np.memmap(kwargs["mark"], mode="w+", shape=(1,))
    return ""
