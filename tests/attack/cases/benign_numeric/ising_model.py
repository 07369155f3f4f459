# /// stoilo-case
# idea = "statistical physics"
# level = "numeric"
# ///
"""2-D Ising: checkerboard Metropolis and Wolff clusters with observables."""
from collections import deque
import numpy as np


class Ising:
    def __init__(self, L, T, seed):
        self.L, self.beta = L, 1.0 / T
        self.rng = np.random.default_rng(seed)
        self.spins = self.rng.choice(np.array([-1, 1], dtype=np.int8), size=(L, L))
        i, j = np.indices((L, L))
        self._black = (i + j) % 2 == 0

    @property
    def magnetisation(self):
        return abs(self.spins.mean())

    @property
    def energy(self):
        s = self.spins.astype(int)
        return -(s * (np.roll(s, 1, 0) + np.roll(s, 1, 1))).mean()

    def sweep(self):
        for colour in (self._black, ~self._black):
            nb = sum(np.roll(self.spins, sh, ax) for sh in (1, -1) for ax in (0, 1))
            dE = 2 * self.spins * nb
            flip = colour & (self.rng.random(dE.shape) < np.exp(-self.beta * dE))
            self.spins[flip] *= -1

    def wolff(self):
        L, p = self.L, 1 - np.exp(-2 * self.beta)
        start = tuple(int(v) for v in self.rng.integers(0, L, 2))
        s0 = self.spins[start]
        cluster, queue = {start}, deque([start])
        while queue:
            y, x = queue.popleft()
            for nb in ((y + 1) % L, x), ((y - 1) % L, x), (y, (x + 1) % L), (y, (x - 1) % L):
                if nb not in cluster and self.spins[nb] == s0 and self.rng.random() < p:
                    cluster.add(nb)
                    queue.append(nb)
        ys, xs = np.array(sorted(cluster)).T
        self.spins[ys, xs] *= -1
        return len(cluster)


def run(kwargs):
    result = {}
    for T in (1.5, 2.27, 3.5):
        model = Ising(12, T, seed=int(T * 100))
        for _ in range(60):
            model.sweep()
        sizes = [model.wolff() for _ in range(5)]
        m = []
        for _ in range(40):
            model.sweep()
            m.append(model.magnetisation)
        m = np.array(m)
        result[str(T)] = [m.mean(), model.beta * model.L**2 * m.var(), model.energy, sizes]
    return result
