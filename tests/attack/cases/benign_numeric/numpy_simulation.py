# /// stoilo-case
# idea = "numpy simulation"
# run = "task"
# level = "numeric"
# ///
import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Lattice:
    size: int
    temperature: float
    seed: int = 0
    spins: np.ndarray = field(init=False)

    def __post_init__(self):
        self._rng = np.random.default_rng(self.seed)
        self.spins = self._rng.choice([-1, 1], size=(self.size, self.size))

    def energy(self):
        s = self.spins
        return -float((s * (np.roll(s, 1, 0) + np.roll(s, 1, 1))).sum())

    def sweep(self):
        for _ in range(self.size**2):
            i, j = self._rng.integers(0, self.size, 2)
            around = (
                self.spins[(i + 1) % self.size, j]
                + self.spins[i - 1, j]
                + self.spins[i, (j + 1) % self.size]
                + self.spins[i, j - 1]
            )
            delta = 2 * self.spins[i, j] * around
            if delta <= 0 or self._rng.random() < math.exp(-delta / self.temperature):
                self.spins[i, j] *= -1


def run(kwargs):
    lattice = Lattice(6, 2.0, seed=1)
    energies = []
    for _ in range(4):
        lattice.sweep()
        energies.append(lattice.energy())
    return [energies, lattice.spins]
