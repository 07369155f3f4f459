# expect: refused STO-G102
# level: numeric
import numpy as np


def run(kwargs):
    a = np.zeros(4)
    a.strides = (8,)
    return "ESCAPED"
