import numpy as np


def run(n):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20000, 20))
    y = (x @ rng.normal(size=20) + 0.3 * rng.normal(size=20000) > 0).astype(float)
    w = np.zeros(20)
    for _ in range(n):
        p = 1 / (1 + np.exp(-(x @ w)))
        w -= 0.5 * (x.T @ (p - y)) / len(y) + 1e-4 * w
    return float(np.linalg.norm(w))
