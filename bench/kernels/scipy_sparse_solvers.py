import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import cg, eigsh, splu


def run(n):
    side = 40
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    eye = sparse.eye_array(side)
    a = (sparse.kron(line, eye) + sparse.kron(eye, line)).tocsc()
    b = np.linspace(0, 1, side * side)
    total = 0.0
    for k in range(n):
        shifted = a + (0.01 + k / n) * sparse.eye_array(side * side)
        total += float(splu(shifted.tocsc()).solve(b).sum())
        total += float(cg(shifted.tocsr(), b, rtol=1e-8)[0].sum())
        total += float(eigsh(shifted, k=3, v0=b)[0].sum())
        total += float(csgraph.connected_components(shifted)[0])
    return total
