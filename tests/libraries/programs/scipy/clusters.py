"""Clusters, by means and by trees."""

import numpy as np
from scipy.cluster import hierarchy, vq


def _groups():
    rng = np.random.default_rng(13)
    return np.vstack([rng.normal(centre, 0.3, (15, 2)) for centre in (0, 3, 6)])


def by_means(args):
    points = vq.whiten(_groups())
    centres, spread = vq.kmeans(points, 3, rng=1)
    labels, far = vq.vq(points, centres)
    again, names = vq.kmeans2(points, points[:3].copy(), minit="matrix")
    return centres.tolist(), float(spread), labels.tolist(), again.tolist(), names.tolist()


def by_trees(args):
    found = []
    for method in ("single", "complete", "average", "ward"):
        tree = hierarchy.linkage(_groups(), method)
        labels = hierarchy.fcluster(tree, 3, criterion="maxclust")
        found.append([tree[-3:].tolist(), labels.tolist()])
    top = hierarchy.to_tree(tree)
    picture = hierarchy.dendrogram(tree, no_plot=True)
    return found, top.count, top.get_left().count, picture["leaves"]
