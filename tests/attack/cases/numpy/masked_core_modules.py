# /// stoilo-case
# idea = "modules inside numpy's modules"
# level = "numeric"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import numpy as np


def run(kwargs):
    system = np.ma.core.inspect.os
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
