# /// stoilo-case
# idea = "linear algebra"
# level = "numeric"
# ///
"""Old-style matrices, complex branches, decompositions checked with numpy.testing."""
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal


def gram_schmidt(A):
    Q = np.zeros_like(A)
    for j in range(A.shape[1]):
        v = A[:, j] - Q[:, :j] @ (Q[:, :j].T @ A[:, j])
        Q[:, j] = v / np.linalg.norm(v)
    return Q


def jacobi_eigen(A, sweeps=10):
    A, V = A.copy(), np.eye(len(A))
    n = len(A)
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(A[p, q]) < 1e-15:
                    continue
                theta = 0.5 * np.arctan2(2 * A[p, q], A[q, q] - A[p, p])
                c, s = np.cos(theta), np.sin(theta)
                J = np.eye(n)
                J[[p, q], [p, q]] = c
                J[p, q], J[q, p] = s, -s
                A = J.T @ A @ J
                V = V @ J
    return np.sort(np.diag(A)), V


def run(kwargs):
    rng = np.random.default_rng(12)
    A = rng.normal(size=(4, 4))
    S = A @ A.T + np.eye(4)
    M = np.matrix([[1, 2], [3, 4]])
    Q = gram_schmidt(A)
    assert_allclose(Q.T @ Q, np.eye(4), atol=1e-12)
    w, _ = jacobi_eigen(S)
    assert_allclose(w, np.linalg.eigvalsh(S), rtol=1e-10)
    assert_array_equal(np.asarray(M * M), [[7, 10], [15, 22]])
    P, L, U = np.eye(4), np.eye(4), S.copy()
    for k in range(4):
        i = k + np.abs(U[k:, k]).argmax()
        for X in (U, P):
            X[[k, i]] = X[[i, k]]
        L[[k, i], :k] = L[[i, k], :k]
        L[k + 1 :, k] = U[k + 1 :, k] / U[k, k]
        U[k + 1 :] -= np.outer(L[k + 1 :, k], U[k])
    assert_allclose(L @ U, P @ S, atol=1e-10)
    try:
        np.linalg.inv(np.ones((2, 2)))
    except np.linalg.LinAlgError as error:
        print("singular:", error)
    sign, logdet = np.linalg.slogdet(S)
    return {
        "matrix": [np.asarray(M.T @ M), np.asarray(M**2), M.shape, float(M.sum())],
        "emath": [np.emath.sqrt(-4), np.emath.log(-1.0), np.emath.power([2, 4], -2), np.emath.arccos(2)],
        "det": sign * np.exp(logdet) - np.linalg.det(S),
        "cond": np.linalg.cond(S),
        "expm": sum((np.linalg.matrix_power(S / 50, k) / np.prod(np.arange(1, k + 1)) for k in range(8)), np.zeros((4, 4))),
        "lstsq": np.linalg.lstsq(A[:, :2], A[:, 2])[0],
        "multi": np.linalg.multi_dot([A, S, A.T]).trace(),
        "rank": np.linalg.matrix_rank(np.outer(A[0], A[1])),
        "kron": np.kron(np.asarray(M), np.eye(2))[1],
        "pinv": np.linalg.pinv(A[:, :2]) @ A[:, :2],
        "norms": [np.linalg.norm(S, o) for o in (1, 2, np.inf, "fro", "nuc")],
    }
