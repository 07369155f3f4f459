import numpy as np


def run(n):
    rng = np.random.default_rng(7)
    total = 0
    for _ in range(n):
        values = rng.integers(0, 5000, 60000)
        kinds, counts = np.unique(values, return_counts=True)
        order = np.argsort(values, kind="stable")
        place = np.searchsorted(np.sort(values), [10, 500, 4000])
        total += int(counts.max() + order[7] + place.sum() + kinds.size)
        total += int(np.bincount(values, minlength=5000)[3])
    return total
