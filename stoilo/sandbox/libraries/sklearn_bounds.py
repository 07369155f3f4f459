"""Loops in C of scikit-learn that believe numbers which a task can choose: checked first.

A fitted model shows its arrays (``tree_.children_left``, ``support_``), a task writes into
them, and a parameter set after fitting changes how they are read; own estimators give
arrays of any length. What is checked stands where the library's own code finds it, so no
road goes around it.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse._compressed import _cs_matrix
from sklearn.cluster import _dbscan
from sklearn.ensemble import _gb
from sklearn.linear_model import _coordinate_descent
from sklearn.metrics import _dist_metrics
from sklearn.metrics._pairwise_distances_reduction import RadiusNeighbors
from sklearn.neighbors import BallTree, KDTree
from sklearn.svm import _base as svm
from sklearn.tree._tree import Tree
from sklearn.utils import validation

from stoilo.core.codec.fitted import check_vectors, refuse
from stoilo.core.codec.sparse import check_sparse
from stoilo.sandbox.language.hardening import replace_member
from stoilo.sandbox.language.ownership import class_dict, class_mro
from stoilo.sandbox.language.rules import Closed

# Methods compiled by Cython take anything for ``self``; as functions they are bound with all
# the others (`hardening.bind_receivers`)


def _uncompile(kind: type) -> None:
    for owner in class_mro(kind):
        for name, member in list(class_dict(owner).items()):
            compiled = type(member).__name__ == "cython_function_or_method"
            if compiled and not name.startswith("_"):
                replace_member(owner, name, _in_python(member))


def _in_python(asked: Any) -> Any:
    @functools.wraps(asked, updated=())
    def method(self: Any, /, *values: Any, **options: Any) -> Any:
        return asked(self, *values, **options)

    return method


# Trees: their arrays are shown as copies, and data have their columns --------------------

_SHOWN = (
    *("children_left", "children_right", "feature", "n_classes", "n_node_samples"),
    "missing_go_to_left",
)
_ASKED = ("predict", "apply", "decision_path")


def _show_copies(name: str) -> None:
    read = Tree.__dict__[name].__get__

    def show(tree: Any) -> Any:
        return read(tree).copy()

    replace_member(Tree, name, property(show))


def _check_columns(name: str) -> None:
    asked = Tree.__dict__[name]

    @functools.wraps(asked, updated=())
    def method(self: Any, X: Any) -> Any:
        if np.ndim(X) == 2 and X.shape[1] != self.n_features:  # noqa: PLR2004 - else refused
            raise ValueError(f"the tree was grown on {self.n_features} columns")
        return asked(self, X)

    replace_member(Tree, name, method)


def _bound_trees() -> None:
    for name in _SHOWN:
        _show_copies(name)
    for name in _ASKED:
        _check_columns(name)
    dependence = Tree.__dict__["compute_partial_dependence"]

    def compute_partial_dependence(
        self: Any,
        X: Any,
        target_features: Any,
        out: Any,
    ) -> None:
        if np.shape(X) != (len(out), len(target_features)):
            raise ValueError("a row of X is a value for each target feature")
        dependence(self, X, target_features, out)

    replace_member(Tree, "compute_partial_dependence", compute_partial_dependence)


# No array of objects shows its memory here (`array_memory.seal_exports`), and two loops in
# C ask for that: these say the same in Python, with the same roundings.


def _predict_stages(estimators: Any, X: Any, scale: float, out: Any) -> None:
    for row in estimators:
        for place, one in enumerate(row):
            if type(one.tree_) is not Tree:
                raise ValueError("a stage of gradient boosting is no tree")
            out[:, place] += scale * one.tree_.predict(X).ravel()


def _predict_stage(estimators: Any, stage: int, X: Any, scale: float, out: Any) -> None:
    _predict_stages(estimators[stage : stage + 1], X, scale, out)


def _dbscan_inner(is_core: Any, neighborhoods: Any, labels: Any) -> None:
    label = 0
    for begin in range(len(labels)):
        if labels[begin] != -1 or not is_core[begin]:
            continue
        waiting = [begin]
        while waiting:
            place = waiting.pop()
            if labels[place] != -1:
                continue
            labels[place] = label
            if is_core[place]:
                near = neighborhoods[place]
                waiting += near[labels[near] == -1].tolist()
        label += 1


_raw_predictions = _gb._init_raw_predictions


def _init_raw_predictions(
    X: Any, estimator: Any, loss: Any, use_predict_proba: Any
) -> Any:
    made = _raw_predictions(X, estimator, loss, use_predict_proba)
    if made.shape != (X.shape[0], loss.n_classes if loss.is_multiclass else 1):
        raise ValueError("init gave predictions of another shape")
    return made


# Support vectors ------------------------------------------------------------------------


def _checked_dense(asked: Any) -> Any:
    def ask(
        X: Any,
        support: Any,
        SV: Any,
        nSV: Any,
        sv_coef: Any,
        intercept: Any,
        probA: Any,
        probB: Any,
        **options: Any,
    ) -> Any:
        check_vectors(
            X.shape[1],
            support,
            SV.shape,
            nSV,
            sv_coef.shape,
            len(intercept),
            (len(probA), len(probB)),
            kind=options["svm_type"],
            precomputed=options["kernel"] == "precomputed",
        )
        return asked(X, support, SV, nSV, sv_coef, intercept, probA, probB, **options)

    return ask


def _fit_dense(X: Any, Y: Any, **options: Any) -> Any:
    if options.get("kernel") == "precomputed" and X.shape[0] != X.shape[1]:
        raise ValueError("a kernel's matrix is square")
    weights = options["sample_weight"]
    if len(X) != len(Y) or len(weights) not in {0, len(X)}:
        raise ValueError("each sample has a target and a weight")
    return svm_dense.fit(X, Y, **options)


svm_dense, svm_sparse = svm.libsvm, svm.libsvm_sparse


def _checked_sparse(asked: Any) -> Any:
    # data, indices, indptr of the data and of the vectors, coefficients, intercepts, kind, …
    def ask(*given: Any) -> Any:
        _, indices, indptr, values, vectors, lines, coefficients, intercepts, kind = (
            given[:9]
        )
        counts, chances = given[-3], (len(given[-2]), len(given[-1]))
        total, classes = len(lines) - 1, len(counts)
        for places, ends in ((indices, indptr), (vectors, lines)):
            inside = (
                ends[0] == 0 and ends[-1] == len(places) and (np.diff(ends) >= 0).all()
            )
            if not inside or (places < 0).any():
                raise refuse("its sparse rows do not follow each other")
        if len(values) != len(vectors) or len(coefficients) != (classes - 1) * total:
            raise refuse("support vectors have more or fewer coefficients")
        shape = (classes - 1, total)
        check_vectors(
            0,
            np.zeros(total, np.int32),
            (total, 0),
            counts,
            shape,
            len(intercepts),
            chances,
            kind=kind,
            precomputed=False,
        )
        return asked(*given)

    return ask


def _bound_vectors() -> None:
    dense, sparse = ModuleType("libsvm"), ModuleType("libsvm_sparse")
    vars(dense).update(vars(svm_dense))
    vars(sparse).update(vars(svm_sparse))
    for name in ("predict", "predict_proba", "decision_function"):
        setattr(dense, name, _checked_dense(getattr(svm_dense, name)))
        whole = f"libsvm_sparse_{name}"
        setattr(sparse, whole, _checked_sparse(getattr(svm_sparse, whole)))
    dense.fit = _fit_dense  # type: ignore[attr-defined]  # a module made here
    svm.libsvm, svm.libsvm_sparse = dense, sparse
    compute = svm.BaseLibSVM._compute_kernel

    def _compute_kernel(self: Any, X: Any) -> Any:
        made = compute(self, X)
        if callable(self.kernel) and (np.ndim(made) != 2 or len(made) != X.shape[0]):  # noqa: PLR2004 - a matrix
            raise ValueError("a kernel gives a row for each sample")
        return made

    svm.BaseLibSVM._compute_kernel = _compute_kernel


# Nearest neighbours: own metrics get copies, and the trees keep their places to themselves

_PLACES = ("get_arrays", "idx_array", "node_bounds", "node_data")


def _copying(function: Any) -> Any:
    # The library shows a metric two rows of memory that is freed with the tree
    @functools.wraps(function, updated=())
    def metric(first: Any, second: Any, **more: Any) -> Any:
        return function(first.copy(), second.copy(), **more)

    return metric


def _bound_neighbours() -> None:
    library: Any = _dist_metrics
    for kind in (library.PyFuncDistance64, library.PyFuncDistance32):
        begin = kind.__init__

        def begin_copying(
            self: Any, func: Any, _begin: Any = begin, **more: Any
        ) -> None:
            _begin(self, _copying(func), **more)

        replace_member(kind, "__init__", begin_copying)
    for tree in (KDTree, BallTree):
        base: Any = tree.__mro__[2]
        for name in _PLACES:
            replace_member(base, name, Closed(tree.__name__, name))
        _show_data_copy(base)


def _show_data_copy(tree: Any) -> None:
    read = tree.__dict__["data"].__get__
    replace_member(tree, "data", property(lambda self: np.array(read(self))))


# Descents along coordinates: the arrays fit each other ----------------------------------


def _checked_gram(asked: Any) -> Any:
    def descend(
        w: Any, alpha: Any, beta: Any, Q: Any, q: Any, y: Any, *more: Any
    ) -> Any:
        if Q.shape != (len(w), len(w)) or q.shape != w.shape:
            raise ValueError("precompute is a square of the features, and Xy a column")
        return asked(w, alpha, beta, Q, q, y, *more)

    return descend


def _checked_rows(asked: Any) -> Any:
    def descend(w: Any, alpha: Any, beta: Any, X: Any, y: Any, *more: Any) -> Any:
        if X.shape != (len(y), len(w)):
            raise ValueError("coefficients fit the features, and samples their targets")
        return asked(w, alpha, beta, X, y, *more)

    return descend


def _checked_sparse_rows(asked: Any) -> Any:
    def descend(**given: Any) -> Any:
        if len(given["w"]) != len(given["X_indptr"]) - 1 or np.ndim(given["y"]) != 1:
            raise ValueError("coefficients fit the features")
        return asked(**given)

    return descend


def _checked_tasks(asked: Any) -> Any:
    def descend(**given: Any) -> Any:
        tasks, features = given["W"].shape
        sparse, X = given["X_is_sparse"], given["X"]  # noqa: N806 - the library's name
        wide = len(given["X_indptr"]) - 1 if sparse else X.shape[1]
        if (wide, tasks) != (features, given["Y"].shape[1]):
            raise ValueError("coefficients fit features and targets")
        if not sparse and len(X) != len(given["Y"]):
            raise ValueError("samples have their targets")
        return asked(**given)

    return descend


_DESCENTS = {
    "enet_coordinate_descent": _checked_rows,
    "enet_coordinate_descent_gram": _checked_gram,
    "enet_coordinate_descent_multi_task": _checked_tasks,
    "sparse_enet_coordinate_descent": _checked_sparse_rows,
}


def _bound_descents() -> None:
    real: Any = _coordinate_descent.cd_fast
    made: Any = ModuleType("cd_fast")
    vars(made).update(vars(real))
    for name, check in _DESCENTS.items():
        setattr(made, name, check(getattr(real, name)))
    _coordinate_descent.cd_fast = made


# Sparse data: a task may have written into their places ---------------------------------

_ensure_format = validation._ensure_sparse_format


def _ensure_sparse_format(sparse_container: Any, *more: Any, **options: Any) -> Any:
    check_sparse(sparse_container)
    return _ensure_format(sparse_container, *more, **options)


_check_format = _cs_matrix.check_format


def _check_whole_format(self: Any, full_check: bool = True) -> None:
    # Encoders make places from lists that a task can write into (``categories_``)
    del full_check
    _check_format(self, full_check=True)


def bound_loops() -> None:
    """Put every check where the library finds it (in the zygote, once)."""
    for kind in (KDTree, BallTree):
        _uncompile(kind)
    _bound_trees()
    _bound_vectors()
    _bound_neighbours()
    _bound_descents()
    _gb.predict_stage, _gb.predict_stages = _predict_stage, _predict_stages
    _gb._init_raw_predictions = _init_raw_predictions
    _dbscan.dbscan_inner = _dbscan_inner
    RadiusNeighbors.is_usable_for = classmethod(lambda *_values: False)
    _cs_matrix.check_format = _check_whole_format
    validation._ensure_sparse_format = _ensure_sparse_format
