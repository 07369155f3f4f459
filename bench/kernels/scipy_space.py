import numpy as np
from scipy import spatial
from scipy.cluster import hierarchy


def run(n):
    rng = np.random.default_rng(12)
    total = 0.0
    for _ in range(n):
        points = rng.uniform(size=(600, 3))
        tree = spatial.KDTree(points)
        far, _ = tree.query(points, k=4)
        near = tree.query_ball_point(points, 0.1)
        total += float(far.sum()) + sum(map(len, near))
        total += spatial.ConvexHull(points).volume
        total += float(hierarchy.linkage(points[:300], "ward")[:, 2].sum())
    return total
