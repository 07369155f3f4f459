# /// stoilo-case
# idea = "stochastic processes"
# level = "numeric"
# ///
"""Gillespie's algorithm, tau leaping and the mean-field ODE of an SIR model."""
import numpy as np
from collections.abc import Iterator


class Network:
    def __init__(self, species, reactions):
        self.species = tuple(species)
        index = {s: i for i, s in enumerate(self.species)}
        self.change = np.zeros((len(reactions), len(index)), dtype=int)
        self.order = np.zeros_like(self.change)
        self.rates = np.array([rate for *_, rate in reactions], dtype=float)
        for k, (left, right, _) in enumerate(reactions):
            for s in left.split("+"):
                self.order[k, index[s]] += 1
                self.change[k, index[s]] -= 1
            for s in filter(None, right.split("+")):
                self.change[k, index[s]] += 1

    def propensity(self, x):
        return self.rates * np.prod(np.where(self.order > 0, x, 1) ** np.maximum(self.order, 1), axis=-1)

    def gillespie(self, x, t_end, rng) -> Iterator[tuple[float, np.ndarray]]:
        t = 0.0
        while True:
            yield t, x.copy()
            a = self.propensity(x)
            total = a.sum()
            if total == 0:
                return
            t += rng.exponential(1 / total)
            if t > t_end:
                return
            x = x + self.change[rng.choice(len(a), p=a / total)]

    def leap(self, x, t_end, tau, rng):
        for _ in np.arange(0, t_end, tau):
            x = np.maximum(x + rng.poisson(self.propensity(x) * tau) @ self.change, 0)
        return x


def run(kwargs):
    net = Network("SIR", [("S+I", "I+I", 0.002), ("I", "R", 0.1)])
    x0 = np.array([190, 10, 0])
    rng = np.random.default_rng(17)
    runs = [list(net.gillespie(x0, 60, rng)) for _ in range(5)]
    finals = np.array([r[-1][1] for r in runs])
    peaks = [max(x[1] for _, x in r) for r in runs]
    x = x0.astype(float)
    for _ in range(6000):
        x = x + 0.01 * net.propensity(x) @ net.change
    leaps = np.array([net.leap(x0, 60, 0.5, rng) for _ in range(5)])
    assert (finals.sum(axis=1) == x0.sum()).all()
    return {"finals": finals, "peaks": [int(p) for p in peaks], "ode": x, "leap": leaps.mean(axis=0), "events": [len(r) for r in runs]}
