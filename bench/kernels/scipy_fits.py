import numpy as np
from scipy.optimize import curve_fit, least_squares, minimize


def model(t, size, rate, floor):
    return size * np.exp(-rate * t) + floor


def run(n):
    rng = np.random.default_rng(3)
    t = np.linspace(0, 4, 80)
    total = 0.0
    for _ in range(n):
        y = model(t, 2.5, 1.3, 0.5) + rng.normal(0, 0.05, t.size)
        best, _ = curve_fit(model, t, y, p0=[1, 1, 0])
        robust = least_squares(
            lambda p, y=y: model(t, *p) - y, [1, 1, 0], loss="soft_l1"
        )
        far = minimize(lambda p, y=y: float(((model(t, *p) - y) ** 2).sum()), [1, 1, 0])
        total += float(best.sum() + robust.x.sum() + far.x.sum())
    return total
