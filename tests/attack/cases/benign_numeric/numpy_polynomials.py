# /// stoilo-case
# idea = "numpy polynomials"
# run = "task"
# level = "numeric"
# ///
import numpy as np
from numpy.polynomial import Polynomial


def run(kwargs):
    p = Polynomial([1, 2, 3])
    q = p.deriv()
    fit = np.polyfit([0, 1, 2], [1, 2, 5], 2)
    return [
        p(2),
        q.coef,
        np.sort(np.roots([1, -3, 2])),
        fit,
        np.poly1d([1, 0])(3),
        (p * q).coef,
    ]
