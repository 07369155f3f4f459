# expect: refused STO-G019
# level: numeric
from numpy.lib.stride_tricks import as_strided
import numpy as np


def run(kwargs):
    return "ESCAPED" if as_strided(np.zeros(1), (9,), (8,)).size else ""
