import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA


def run(n):
    rng = np.random.default_rng(6)
    points = np.concatenate([rng.normal(c, 1.0, (400, 6)) for c in (0, 4, 8)])
    total = 0.0
    for k in range(n):
        means = KMeans(n_clusters=3, n_init=1, random_state=k).fit(points)
        total += float(means.inertia_) + float(PCA(2).fit_transform(points).std())
    return total
