# /// stoilo-case
# idea = "partial differential equation, elliptic"
# level = "numeric"
# ///
"""Poisson equation: geometric multigrid V-cycle with red-black Gauss-Seidel."""
import numpy as np


def smooth(u, f, h, sweeps=2):
    for _ in range(sweeps):
        for parity in (0, 1):
            for i in range(1, u.shape[0] - 1):
                js = slice(1 + (i + parity) % 2, -1, 2)
                u[i, js] = 0.25 * (u[i - 1, js] + u[i + 1, js] + u[i, js.start - 1:-2:2] + u[i, js.start + 1::2][: u[i, js].size] - h * h * f[i, js])
    return u


def residual(u, f, h):
    r = np.zeros_like(u)
    r[1:-1, 1:-1] = f[1:-1, 1:-1] - (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]) / h**2
    return r


def vcycle(u, f, h):
    if u.shape[0] <= 5:
        return smooth(u, f, h, 30)
    u = smooth(u, f, h)
    coarse = residual(u, f, h)[::2, ::2].copy()
    e = vcycle(np.zeros_like(coarse), coarse, 2 * h)
    fine = np.zeros_like(u)
    fine[::2, ::2] = e
    fine[1::2, ::2] = 0.5 * (e[:-1] + e[1:])
    fine[:, 1::2] = 0.5 * (fine[:, :-1:2] + fine[:, 2::2])
    return smooth(u + fine, f, h)


def run(kwargs):
    n = 33
    x = np.linspace(0, 1, n)
    X, Y = np.meshgrid(x, x, indexing="ij")
    f = -2 * np.pi**2 * np.sin(np.pi * X) * np.sin(np.pi * Y)
    u = np.zeros((n, n))
    history = []
    for _ in range(6):
        u = vcycle(u, f, 1 / (n - 1))
        history.append(np.abs(residual(u, f, 1 / (n - 1))).max())
    exact = np.sin(np.pi * X) * np.sin(np.pi * Y)
    return {"history": np.array(history), "error": np.abs(u - exact).max()}
