# /// stoilo-case
# idea = "partial differential equation, parabolic"
# level = "numeric"
# ///
"""1-D heat equation: explicit, implicit (Thomas) and Crank-Nicolson, against the exact one."""
import numpy as np


def thomas(a, b, c, d):
    n = len(d)
    cp, dp = np.zeros(n), np.zeros(n)
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m if i < n - 1 else 0.0
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.zeros_like(d)
    x[-1] = dp[-1]
    for i in reversed(range(n - 1)):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def run(kwargs):
    nx, alpha, t_end = 51, 0.1, 0.5
    x = np.linspace(0, 1, nx)
    dx = x[1] - x[0]
    u0 = np.sin(np.pi * x)
    exact = np.exp(-alpha * np.pi**2 * t_end) * u0
    errors = {}

    dt = 0.4 * dx**2 / alpha
    u = u0.copy()
    for _ in range(int(np.ceil(t_end / dt))):
        u[1:-1] += alpha * dt / dx**2 * (u[2:] - 2 * u[1:-1] + u[:-2])
    errors["explicit"] = np.abs(u - exact).max()

    for name, theta in (("implicit", 1.0), ("crank_nicolson", 0.5)):
        steps = 100
        r = alpha * (t_end / steps) / dx**2
        u = u0.copy()
        n = nx - 2
        a, b, c = np.full(n, -theta * r), np.full(n, 1 + 2 * theta * r), np.full(n, -theta * r)
        for _ in range(steps):
            rhs = u[1:-1] + (1 - theta) * r * np.diff(u, 2)
            u[1:-1] = thomas(a, b, c, rhs)
        errors[name] = np.abs(u - exact).max()
    for name, err in sorted(errors.items(), key=lambda kv: kv[1]):
        print(f"{name:>16s}: {err:.3e}")
    return errors
