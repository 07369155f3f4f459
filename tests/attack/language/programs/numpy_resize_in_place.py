# expect: refused STO-G101
# level: numeric
import numpy as np


def run(kwargs):
    a = np.zeros(1)
    a.resize(4, refcheck=False)
    return "ESCAPED"
