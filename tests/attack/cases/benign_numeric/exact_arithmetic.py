# /// stoilo-case
# idea = "arrays of Python objects"
# level = "numeric"
# ///
"""Fractions, big integers and ragged lists in object arrays; vectorize."""
from fractions import Fraction
import numpy as np


def hilbert(n):
    return np.array([[Fraction(1, i + j + 1) for j in range(n)] for i in range(n)], dtype=object)


def inverse(M):
    n = len(M)
    A = np.hstack([M.copy(), np.array([[Fraction(int(i == j)) for j in range(n)] for i in range(n)])])
    for c in range(n):
        A[c] = A[c] / A[c, c]
        for r in range(n):
            if r != c:
                A[r] = A[r] - A[r, c] * A[c]
    return A[:, n:]


@np.vectorize
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def run(kwargs):
    H = hilbert(5)
    inv = inverse(H)
    eye = H.dot(inv)
    big = np.array([2**70, 3**50], dtype=object)
    ragged = np.array([[1, 2], [3], []], dtype=object)
    gcd = np.vectorize(lambda a, b: np.gcd(a, b), otypes=[int])
    norm = np.vectorize(lambda v: v @ v, signature="(n)->()")
    words = np.array(["x", None, 3.5], dtype=object)
    return {
        "int": [[int(v) for v in row] for row in inv],
        "eye": bool((eye == np.eye(5, dtype=int)).all()),
        "float": inv.astype(float)[0],
        "big": [int(v) for v in (big * big).tolist()],
        "sum": int(big.sum()),
        "ragged": [len(r) for r in ragged],
        "collatz": collatz(np.arange(1, 10)),
        "gcd": gcd([12, 18], [8, 27]),
        "norm": norm(np.arange(6.0).reshape(2, 3)),
        "none": [w is None for w in words],
        "dtype": str(words.dtype),
        "sorted": sorted(H[0].tolist())[0].denominator,
        "trace": str(np.trace(H)),
    }
