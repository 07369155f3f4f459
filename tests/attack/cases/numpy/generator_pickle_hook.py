# /// stoilo-case
# idea = "numpy objects' private helpers"
# level = "numeric"
# stopped_by = "gate"
# ///
import numpy as np


def run(kwargs):
    _, arguments = np.random.default_rng(0).__reduce__()[:2]
    system = np.random._pickle.__builtins__["__import__"]("os")
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
