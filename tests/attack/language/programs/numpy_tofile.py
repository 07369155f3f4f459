# expect: refused STO-G101
# level: numeric
import numpy as np


def run(kwargs):
    return "ESCAPED" if np.zeros(1).tofile else ""
