import numpy as np


def run(n):
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.normal(c, 1.0, (6000, 8)) for c in (0, 4, 8, 12)])
    centres = points[rng.choice(len(points), 12, replace=False)]
    for _ in range(n):
        gaps = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        owner = gaps.argmin(axis=1)
        for k in range(len(centres)):
            if (owner == k).any():
                centres[k] = points[owner == k].mean(axis=0)
    return float(centres.sum())
