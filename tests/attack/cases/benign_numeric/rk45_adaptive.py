# /// stoilo-case
# idea = "ordinary differential equation, adaptive step"
# level = "numeric"
# ///
"""Dormand-Prince 4(5) with step control on the van der Pol oscillator."""
from dataclasses import dataclass, field

import numpy as np

C = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
A = np.zeros((7, 7))
A[1, :1] = [1 / 5]
A[2, :2] = [3 / 40, 9 / 40]
A[3, :3] = [44 / 45, -56 / 15, 32 / 9]
A[4, :4] = [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]
A[5, :5] = [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]
A[6, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]
B5 = A[6].copy()
B4 = np.array([5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40])


@dataclass
class Solution:
    t: list[float] = field(default_factory=list)
    y: list[np.ndarray] = field(default_factory=list)
    rejected: int = 0

    def append(self, t, y):
        self.t.append(t)
        self.y.append(y.copy())


def solve(f, span, y0, rtol=1e-6, atol=1e-9):
    t, end = span
    y = np.asarray(y0, dtype=float)
    h = 1e-3
    sol = Solution()
    sol.append(t, y)
    k = np.zeros((7, y.size))
    while t < end:
        h = min(h, end - t)
        for i in range(7):
            k[i] = f(t + C[i] * h, y + h * (A[i, :i] @ k[:i]))
        new = y + h * (B5 @ k)
        scale = atol + rtol * np.maximum(np.abs(y), np.abs(new))
        err = np.sqrt(np.mean((h * ((B5 - B4) @ k) / scale) ** 2))
        if err <= 1:
            t, y = t + h, new
            sol.append(t, y)
        else:
            sol.rejected += 1
        h *= float(np.clip(0.9 * (1 / max(err, 1e-16)) ** 0.2, 0.2, 5.0))
    return sol


def run(kwargs):
    mu = 5.0
    sol = solve(lambda t, y: np.array([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]]), (0, 10), [2, 0])
    ys = np.vstack(sol.y)
    return {"steps": len(sol.t), "rejected": sol.rejected, "last": ys[-1], "peak": ys[:, 0].max()}
