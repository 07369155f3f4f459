# /// stoilo-case
# idea = "paths handed to numpy"
# level = "numeric"
# stopped_by = "language"
# ///
import numpy as np


class Lines(str):
    def __iter__(self):
        return iter(["1 2"])


def run(kwargs):
    return str(np.loadtxt(Lines(kwargs["canary"]), dtype=str))
