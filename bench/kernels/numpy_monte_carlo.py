import numpy as np


def run(n):
    rng = np.random.default_rng(4)
    payoffs = []
    for _ in range(n):
        steps = rng.standard_normal((400, 252)) * 0.2 * np.sqrt(1 / 252) + 0.03 / 252
        paths = 100 * np.exp(np.cumsum(steps, axis=1))
        payoffs.append(np.maximum(paths.mean(axis=1) - 100, 0).mean())
    return float(np.mean(payoffs)), float(np.std(payoffs))
