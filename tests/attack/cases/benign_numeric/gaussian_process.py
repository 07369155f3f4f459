# /// stoilo-case
# idea = "regression, kernels"
# level = "numeric"
# ///
"""GP regression; hyper-parameters by gradient ascent on the log marginal likelihood."""
from __future__ import annotations

from dataclasses import dataclass
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RBF:
    length: float = 1.0
    variance: float = 1.0

    def __call__(self, a: Array, b: Array) -> Array:
        d2 = np.subtract.outer(a, b) ** 2
        return self.variance * np.exp(-0.5 * d2 / self.length**2)


class GP:
    def __init__(self, kernel: RBF, noise: float):
        self.kernel, self.noise = kernel, noise

    def fit(self, x: Array, y: Array) -> "GP":
        self.x = x
        K = self.kernel(x, x)
        K[np.diag_indices_from(K)] += self.noise
        self.L = np.linalg.cholesky(K)
        self.alpha = np.linalg.solve(self.L.T, np.linalg.solve(self.L, y))
        self.lml = -0.5 * y @ self.alpha - np.log(np.diag(self.L)).sum() - len(x) / 2 * np.log(2 * np.pi)
        return self

    def predict(self, xs: Array) -> tuple[Array, Array]:
        Ks = self.kernel(self.x, xs)
        v = np.linalg.solve(self.L, Ks)
        return Ks.T @ self.alpha, np.sqrt(self.kernel.variance - np.sum(v**2, axis=0))


def run(kwargs):
    rng = np.random.default_rng(8)
    x = np.sort(rng.uniform(-3, 3, 25))
    y = np.sin(2 * x) + 0.1 * rng.normal(size=25)
    theta = np.log([1.0, 1.0, 0.1])

    def lml(th):
        l, v, n = np.exp(th)
        return GP(RBF(l, v), n).fit(x, y).lml

    for _ in range(40):
        g = np.array([(lml(theta + h) - lml(theta - h)) / 2e-4 for h in 1e-4 * np.eye(3)])
        theta += 0.05 * g / max(1.0, np.linalg.norm(g))
    gp = GP(RBF(*np.exp(theta[:2])), np.exp(theta[2])).fit(x, y)
    mean, sd = gp.predict(np.linspace(-3, 3, 7))
    return {"theta": theta, "lml": gp.lml, "mean": mean, "sd": sd, "kernel": str(gp.kernel)}
