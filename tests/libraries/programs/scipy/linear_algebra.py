"""Linear algebra."""

import numpy as np
from scipy import linalg


def solve_a_system(args):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(20, 20)) + 20 * np.eye(20)
    return linalg.solve(a, np.arange(20.0))


def matrix_exponential(args):
    a = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return linalg.expm(a * 0.5)
