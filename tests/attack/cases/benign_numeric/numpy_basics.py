# /// stoilo-case
# idea = "numpy basics"
# run = "task"
# level = "numeric"
# ///
import numpy as np


def run(kwargs):
    a = np.arange(12, dtype=np.float64).reshape(3, 4)
    b = a.copy()
    b[1, :] *= 2
    b[b > 15] = -1
    b[:, 0] += [1, 2, 3]
    mask = (a % 2 == 0) & (a > 2)
    total = np.zeros(4)
    for row in a:
        total += row
    return [
        a.sum(axis=0),
        a.mean(),
        a.std(axis=1),
        b,
        a[mask],
        a.T @ a,
        np.where(a > 5, a, 0),
        np.concatenate([a[:1], b[:1]]),
        np.argsort(-a[0]),
        a.dtype.name,
        a.shape,
        total,
        a.max(initial=3.0),
        np.unique([3, 1, 3], return_counts=True),
        bool((a >= 0).all()),
        isinstance(a, np.ndarray),
        float(a[0, 1]),
    ]
