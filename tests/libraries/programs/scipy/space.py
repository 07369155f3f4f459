"""Neighbours, hulls, cells, turns."""

import numpy as np
from scipy import spatial
from scipy.spatial import distance
from scipy.spatial.transform import Rotation, Slerp


def _points(n=40):
    return np.random.default_rng(12).uniform(size=(n, 2))


def neighbours(args):
    points = _points(200)
    tree = spatial.KDTree(points)
    far, who = tree.query(points[:10], k=3, workers=-1)
    near = tree.query_ball_point(points[0], 0.15, workers=2)
    older = spatial.cKDTree(points)
    pairs = sorted(older.query_pairs(0.02))
    return [
        *(far.tolist(), who.tolist(), sorted(near), pairs),
        older.query(points[5], k=2, workers=2)[1].tolist(),
        int(tree.count_neighbors(older, 0.1)),
        tree.sparse_distance_matrix(tree, 0.03).nnz,
    ]


def voronoi_cells(args):
    cells = spatial.Voronoi(_points())
    return [
        cells.vertices.tolist(),
        [list(map(int, region)) for region in cells.regions],
        cells.point_region.tolist(),
    ]


def hulls_and_triangles(args):
    points = _points()
    hull = spatial.ConvexHull(points)
    mesh = spatial.Delaunay(points, qhull_options="Qbb Qc Qz Q12")
    inside = spatial.HalfspaceIntersection(
        np.array([[-1, 0, 0], [0, -1, 0], [1, 1, -1.0]]), np.array([0.2, 0.2])
    )
    return [
        *(hull.vertices.tolist(), hull.volume, hull.area, mesh.simplices.tolist()),
        mesh.find_simplex([[0.5, 0.5], [5, 5]]).tolist(),
        sorted(inside.intersections.round(9).tolist()),
    ]


def distances(args):
    points = _points(8)
    own = distance.pdist(points, lambda u, v: float(np.abs(u - v).max()))
    return [
        own.tolist(),
        distance.squareform(distance.pdist(points, "cosine")).tolist(),
        distance.cdist(points, points[:3], "minkowski", p=3).tolist(),
        float(distance.jensenshannon([0.2, 0.8], [0.5, 0.5])),
        [float(one) for one in distance.directed_hausdorff(points, points[:4])],
    ]


def turns(args):
    turn = Rotation.from_euler("xyz", [[10, 20, 30], [40, 50, 60]], degrees=True)
    way = Slerp([0, 1], turn)
    return [
        turn.as_quat().tolist(),
        turn.apply([1.0, 0, 0]).tolist(),
        way([0.25, 0.5]).as_matrix().tolist(),
        (turn[0] * turn[1].inv()).magnitude(),
        Rotation.random(2, rng=3).as_rotvec().tolist(),
    ]
