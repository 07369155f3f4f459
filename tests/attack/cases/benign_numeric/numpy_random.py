# /// stoilo-case
# idea = "numpy random"
# run = "task"
# level = "numeric"
# ///
import numpy as np


def run(kwargs):
    rng = np.random.default_rng(42)
    legacy = np.random.RandomState(3)
    np.random.seed(5)
    generator = np.random.Generator(np.random.PCG64(9))
    return [
        rng.normal(size=3),
        rng.integers(0, 10, 5),
        rng.permutation(5),
        rng.choice([1, 2, 3], p=[0.2, 0.3, 0.5]),
        legacy.rand(2),
        np.random.rand(2),
        np.random.randint(0, 9, 3),
        generator.random(),
    ]
