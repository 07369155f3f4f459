# /// stoilo-case
# idea = "ordinary differential equation, fixed step"
# level = "numeric"
# ///
"""Lorenz attractor with classic RK4 and a crude Lyapunov exponent."""
import numpy as np
from typing import Callable

SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0


def lorenz(t: float, s: np.ndarray) -> np.ndarray:
    x, y, z = s
    return np.array([SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z])


def rk4(f: Callable[[float, np.ndarray], np.ndarray], y0, t):
    y = np.empty((len(t), len(y0)))
    y[0] = y0
    for i in range(len(t) - 1):
        h = t[i + 1] - t[i]
        k1 = f(t[i], y[i])
        k2 = f(t[i] + h / 2, y[i] + h / 2 * k1)
        k3 = f(t[i] + h / 2, y[i] + h / 2 * k2)
        k4 = f(t[i] + h, y[i] + h * k3)
        y[i + 1] = y[i] + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def run(kwargs):
    t = np.linspace(0, 5, 1001)
    a = rk4(lorenz, np.array([1.0, 1.0, 1.0]), t)
    b = rk4(lorenz, np.array([1.0, 1.0, 1.0 + 1e-9]), t)
    distance = np.linalg.norm(a - b, axis=1)
    slope, _ = np.polyfit(t[100:], np.log(distance[100:]), 1)
    print(f"largest exponent about {slope:.3f}")
    return {"end": a[-1], "lyapunov": slope, "range": np.ptp(a, axis=0)}
