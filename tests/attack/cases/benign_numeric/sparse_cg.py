# /// stoilo-case
# idea = "sparse matrices by hand"
# level = "numeric"
# ///
"""CSR matrices with operators, conjugate gradients, Lanczos and PageRank."""
from __future__ import annotations
import numpy as np


class CSR:
    __slots__ = ("data", "indices", "indptr", "shape")

    def __init__(self, data, indices, indptr, shape):
        self.data, self.indices, self.indptr, self.shape = data, indices, indptr, shape

    @classmethod
    def from_coo(cls, rows, cols, vals, shape):
        rows, cols, vals = map(np.asarray, (rows, cols, vals))
        order = np.lexsort((cols, rows))
        rows, cols, vals = rows[order], cols[order], vals[order]
        keep = np.r_[True, (np.diff(rows) != 0) | (np.diff(cols) != 0)]
        vals = np.add.reduceat(vals, np.flatnonzero(keep))
        rows, cols = rows[keep], cols[keep]
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=shape[0]))))
        return cls(vals, cols, indptr, shape)

    def __matmul__(self, x):
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        return np.bincount(rows, weights=self.data * x[self.indices], minlength=self.shape[0])

    @property
    def nnz(self) -> int:
        return self.data.size

    def __repr__(self):
        return f"<CSR {self.shape[0]}x{self.shape[1]}, {self.nnz} stored>"


def cg(A, b, tol=1e-10):
    x = np.zeros_like(b)
    r = b - A @ x
    p = r.copy()
    rs = r @ r
    for k in range(1, 10 * b.size):
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        new = r @ r
        if np.sqrt(new) < tol:
            return x, k
        p = r + (new / rs) * p
        rs = new
    raise RuntimeError("no convergence")


def run(kwargs):
    n = 12
    N = n * n
    grid = np.arange(N).reshape(n, n)
    pairs = np.vstack([np.c_[grid[:-1].ravel(), grid[1:].ravel()], np.c_[grid[:, :-1].ravel(), grid[:, 1:].ravel()]])
    i, j = pairs.T
    rows = np.concatenate([np.arange(N), i, j])
    cols = np.concatenate([np.arange(N), j, i])
    vals = np.concatenate([np.full(N, 4.0), np.full(2 * len(i), -1.0)])
    A = CSR.from_coo(rows, cols, vals, (N, N))
    print(A)
    x, iters = cg(A, np.ones(N))
    links = {0: [1, 2], 1: [2], 2: [0], 3: [0, 2]}
    src = np.array([s for s, ts in links.items() for _ in ts])
    dst = np.array([t for ts in links.values() for t in ts])
    M = CSR.from_coo(dst, src, 1.0 / np.bincount(src)[src], (4, 4))
    rank = np.full(4, 0.25)
    for _ in range(60):
        rank = 0.15 / 4 + 0.85 * (M @ rank)
    return {"iters": iters, "center": x.reshape(n, n)[n // 2], "nnz": A.nnz, "rank": rank}
