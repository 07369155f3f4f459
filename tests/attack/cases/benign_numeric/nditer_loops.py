# /// stoilo-case
# idea = "indexing and broadcasting"
# level = "numeric"
# ///
"""Element loops: nditer, ndenumerate, ndindex, flat, broadcast."""
import numpy as np


def run(kwargs):
    a = np.arange(6.0).reshape(2, 3)
    with np.nditer(a, op_flags=["readwrite"]) as it:
        for x in it:
            x[...] = 2 * x
    seen = [float(x) for x in np.nditer(a.T)]
    it = np.nditer(a, flags=["multi_index"])
    diagonal = []
    while not it.finished:
        if it.multi_index[0] == it.multi_index[1]:
            diagonal.append((it.multi_index, float(it[0])))
        it.iternext()
    pairs = [(int(x), int(y)) for x, y in np.nditer([np.arange(3), np.arange(2)[:, None]])]
    b = np.broadcast(np.arange(3), np.arange(2)[:, None])
    sums = [u + v for (u, v) in b]
    total = sum(i * j * v for (i, j), v in np.ndenumerate(a))
    grid = {ix: float(a[ix]) for ix in np.ndindex(a.shape)}
    a.flat[::2] = -1
    a.flat = np.where(a.ravel() < 0, 0, a.ravel())
    return [a, seen, diagonal, pairs, b.shape, [int(s) for s in sums], total, len(grid), a.flat[3], list(map(int, a.flat))]
