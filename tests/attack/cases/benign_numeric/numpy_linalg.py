# /// stoilo-case
# idea = "numpy linalg"
# run = "task"
# level = "numeric"
# ///
import numpy as np
from numpy.linalg import LinAlgError, inv, norm, solve


def run(kwargs):
    a = np.array([[4.0, 1.0], [2.0, 3.0]])
    values, vectors = np.linalg.eig(a)
    q, r = np.linalg.qr(a)
    u, s, vt = np.linalg.svd(a)
    try:
        inv(np.zeros((2, 2)))
    except LinAlgError as error:
        message = str(error)
    return [
        solve(a, [1, 2]),
        inv(a),
        norm(a),
        np.sort(values),
        np.allclose(q @ r, a),
        s,
        message,
        np.linalg.det(a),
    ]
