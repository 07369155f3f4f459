# /// stoilo-case
# idea = "numpy regression"
# run = "task"
# level = "numeric"
# ///
import numpy as np


class LinearModel:
    def __init__(self, features: int, rate: float = 0.1):
        self.w = np.zeros(features)
        self.b = 0.0
        self._rate = rate

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x @ self.w + self.b

    def step(self, x, y):
        error = self.predict(x) - y
        self.w -= self._rate * x.T @ error / len(y)
        self.b -= self._rate * error.mean()
        return float((error**2).mean())


def run(kwargs):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.3
    model = LinearModel(3)
    losses = [model.step(x, y) for _ in range(50)]
    exact, *_ = np.linalg.lstsq(np.c_[x, np.ones(50)], y, rcond=None)
    return [losses[::10], model.w, model.b, exact]
