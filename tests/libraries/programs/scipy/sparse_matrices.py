"""Sparse systems, eigenvalues and graphs."""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sla


def _laplace(n):
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    eye = sparse.eye_array(n)
    return (sparse.kron(line, eye) + sparse.kron(eye, line)).tocsc()


def poisson_on_a_square(args):
    a = _laplace(12)
    b = np.ones(a.shape[0])
    direct = sla.spsolve(a, b)
    steps = []
    gradient, code = sla.cg(a, b, rtol=1e-10, callback=lambda x: steps.append(1))
    residual, _ = sla.gmres(a, b, rtol=1e-8, M=sla.LinearOperator(a.shape, sla.spilu(a).solve))
    factors = sla.splu(a)
    return [
        direct.tolist(),
        [code, len(steps), float(np.abs(gradient - direct).max() < 1e-6)],
        residual[:5].tolist(),
        factors.solve(b)[:5].tolist(),
        int(factors.L.nnz),
    ]


def modes_of_a_membrane(args):
    values, shapes = sla.eigsh(_laplace(10), k=4, sigma=0, v0=np.ones(100))
    left, sizes, _ = sla.svds(_laplace(6), k=3, v0=np.ones(36))
    return values.tolist(), np.abs(shapes[:, 0]).tolist(), np.sort(sizes).tolist()


class Shift(sla.LinearOperator):
    """A circulant matrix that is never written down."""

    def __init__(self, n):
        super().__init__(np.dtype(float), (n, n))
        self.size = n

    def _matvec(self, x):
        return 3 * x.ravel() - np.roll(x.ravel(), 1)

    def _rmatvec(self, x):
        return 3 * x.ravel() - np.roll(x.ravel(), -1)


def operator_of_ones_own(args):
    shift = Shift(20)
    found, code = sla.bicgstab(shift, np.arange(20.0), rtol=1e-10)
    least = sla.lsqr(shift, np.arange(20.0))[0]
    both = shift @ shift.T
    return found.tolist(), code, least.tolist(), both.matvec(np.arange(20.0)).tolist()


def every_form_of_one_matrix(args):
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 9, 20), rng.integers(0, 9, 20)
    a = sparse.coo_array((rng.normal(size=20), (rows, columns)), shape=(9, 9))
    forms = [a.tocsr(), a.tocsc(), a.tolil(), a.todok(), a.todia(), a.tobsr()]
    editable = a.tolil()
    editable[3, 4] = 7.5
    keyed = a.todok()
    keyed[0, 0] = 1.0
    return [
        [(form.format, form.nnz, form.sum()) for form in forms],
        (a.tocsr()[2:5] @ np.arange(9.0)).tolist(),
        editable.tocsr().toarray()[3].tolist(),
        float(keyed[0, 0]),
        sparse.hstack([a, a]).shape,
        a.tocsr().multiply(a.tocsr()).max(),
        sla.expm_multiply(a.tocsc(), np.ones(9)).tolist(),
    ]


def shortest_ways(args):
    rng = np.random.default_rng(9)
    weights = rng.integers(0, 9, (12, 12)) * (rng.uniform(size=(12, 12)) < 0.3)
    graph = sparse.csr_array(weights.astype(float))
    far, before = csgraph.dijkstra(graph, return_predecessors=True)
    parts, labels = csgraph.connected_components(graph)
    tree = csgraph.minimum_spanning_tree(graph)
    flow = csgraph.maximum_flow(sparse.csr_array(weights.astype(np.int32)), 0, 11)
    return [
        np.nan_to_num(far, posinf=-1).tolist(),
        *(before.tolist(), int(parts), labels.tolist(), float(tree.sum())),
        *(int(flow.flow_value), csgraph.laplacian(graph).toarray().tolist()),
    ]
