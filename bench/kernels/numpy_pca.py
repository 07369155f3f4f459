import numpy as np


def run(n):
    rng = np.random.default_rng(6)
    kept = 0.0
    for _ in range(n):
        data = rng.normal(size=(800, 60)) @ rng.normal(size=(60, 60))
        data -= data.mean(axis=0)
        _, scale, axes = np.linalg.svd(data, full_matrices=False)
        shown = data @ axes[:5].T
        kept += float((scale[:5] ** 2).sum() / (scale**2).sum()) + float(shown.std())
    return kept
