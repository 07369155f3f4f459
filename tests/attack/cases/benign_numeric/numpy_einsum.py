# /// stoilo-case
# idea = "numpy einsum"
# run = "task"
# level = "numeric"
# ///
import numpy as np


def run(kwargs):
    a = np.arange(6.0).reshape(2, 3)
    b = np.arange(12.0).reshape(3, 4)
    c = np.einsum("ij,jk->ik", a, b)
    trace = np.einsum("ii", np.eye(3))
    outer = np.einsum("i,j->ij", a[0], b[:, 0])
    return [
        c,
        float(trace),
        outer,
        np.tensordot(a, b, axes=1),
        np.kron(np.eye(2), [[1, 2]]),
    ]
