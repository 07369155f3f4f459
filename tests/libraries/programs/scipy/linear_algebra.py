"""Dense matrices: systems, factorisations, functions and equations of matrices."""

import numpy as np
from scipy import linalg


def _matrix(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, n)) + n * np.eye(n)


def solve_a_system(args):
    a = _matrix(30)
    return linalg.solve(a, np.arange(30.0)).tolist()


def matrix_exponential(args):
    return linalg.expm(_matrix(6) / 10).tolist()


def factors_of_one_matrix(args):
    a = _matrix(12)
    q, r = linalg.qr(a)
    p, lower, upper = linalg.lu(a)
    u, s, vh = linalg.svd(a)
    assert np.allclose(q @ r, a) and np.allclose(p @ lower @ upper, a)
    return [linalg.det(a), s.tolist(), float(linalg.norm(u @ np.diag(s) @ vh - a))]


def vibrating_chain(args):
    n = 40
    stiff = linalg.toeplitz([2.0, -1.0] + [0.0] * (n - 2))
    mass = np.diag(np.linspace(1, 2, n))
    squares, shapes = linalg.eigh(stiff, mass, subset_by_index=[0, 4])
    return np.sqrt(squares).tolist(), np.abs(shapes[:, 0]).tolist()


def control_equations(args):
    a, b = _matrix(4) / 5, np.eye(4)[:, :2]
    cost = linalg.solve_continuous_are(a, b, np.eye(4), np.eye(2))
    grammian = linalg.solve_continuous_lyapunov(-a - a.T, -np.eye(4))
    return cost.tolist(), grammian.tolist(), linalg.sqrtm(cost).tolist()


def refuses_a_singular_matrix(args):
    try:
        linalg.solve(np.zeros((3, 3)), np.ones(3))
    except linalg.LinAlgError as error:
        return str(error)
    return "solved"
