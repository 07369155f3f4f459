# /// stoilo-case
# idea = "indexing and broadcasting"
# level = "numeric"
# ///
import numpy as np


def pairwise(a, b=None):
    b = a if b is None else b
    return np.sqrt(np.maximum((a * a).sum(-1)[:, None] + (b * b).sum(-1) - 2 * a @ b.T, 0))


def run(kwargs):
    a = np.arange(24.0).reshape(2, 3, 4)
    one_hot = np.eye(4)[[0, 2, 1, 3]]
    lookup = np.take_along_axis(a, a.argmax(axis=-1)[..., None], axis=-1).squeeze(-1)
    view = a[..., ::-2]
    view[...] *= 10
    grid = np.ogrid[0:3, 0:4]
    outer = np.add.outer(np.arange(3), np.arange(4)) * grid[0] - grid[1]
    i, j = np.ix_([0, 2], [1, 3])
    outer[i, j] = -1
    idx = np.unravel_index(np.argsort(outer, axis=None, kind="stable")[:3], outer.shape)
    tri = outer[np.tril_indices(3)]
    cube = np.broadcast_to(np.arange(3)[:, None], (2, 3, 2)).copy()
    cube[:, [0, 1], :] = cube[:, [1, 0], :]
    pts = np.array([[0, 0], [3, 4], [6, 8]], float)
    sel = np.select([outer < 0, outer > 5], [0, outer * 2], default=outer)
    m = np.r_[1:4, 0, [7, 8]]
    packed = np.packbits(np.unpackbits(np.array([3, 255], dtype=np.uint8)).reshape(2, 8)[:, ::-1], axis=1)
    return [a, one_hot, lookup, outer, list(idx), tri, cube, pairwise(pts), sel, m, packed, np.s_[1:3, ...] == (slice(1, 3), Ellipsis), a.strides == (96, 32, 8), a.flags.c_contiguous, view.base is a or view.base is a.base, a.nbytes, a.T.shape]
