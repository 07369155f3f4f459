"""What a fitted model of scikit-learn must hold, and what it makes again itself.

Only what the library would follow without looking: places, counts and shapes that its
loops in C use, and names that it reads attributes by. It is asked of what came from the
wire, and in a jail of what a task could have written into. Trust: all of it is hostile.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stoilo.core.codec.sparse import check_sparse
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_NODES = 2**31 - 1
_NO_CHILD = -1
_CLASSIFIERS = frozenset({0, 1})  # C-SVC and nu-SVC, as libsvm numbers its kinds


def refuse(message: str) -> TrustError:
    """Return the refusal ``STO-D002`` of a fitted model that is none."""
    return TrustError("STO-D002", f"a fitted model is malformed: {message}")


def check_nodes(
    nodes: Any, values: Any, features: int, shape: tuple[int, int], depth: int
) -> None:
    """Raise ``STO-D002`` unless `nodes` are a tree that never looks outside.

    Args:
        nodes: a record a node, the root first, as the library keeps them: a child comes
            after its parent, so no walk goes in a circle.
        values: of each node, for each output, for each class.
        features: how many columns the data have.
        shape: outputs, and classes of the output that has most.
        depth: nodes from the root to the farthest leaf, less one; paths have this room.
    """
    count = nodes.shape[0]
    if not 0 < count <= MOST_NODES or values.shape != (count, *shape):
        raise refuse("a tree's values do not fit its nodes")
    left, right, feature = (
        nodes[one] for one in ("left_child", "right_child", "feature")
    )
    inner = left != _NO_CHILD
    if not (inner == (right != _NO_CHILD)).all():
        raise refuse("a tree's node has one child")
    place = inner.nonzero()[0]
    for child in (left[place], right[place]):
        if (child <= place).any() or (child >= count).any():
            raise refuse("a tree's child lies outside or before its parent")
    if len({*left[place].tolist(), *right[place].tolist()}) != 2 * place.size:
        raise refuse("two nodes of a tree have the same child")
    if (feature[place] < 0).any() or (feature[place] >= features).any():
        raise refuse("a tree asks for a column that there is not")
    level = place[:1]  # the root, unless it is a leaf
    for _ in range(depth):
        below = [*left[level], *right[level]]
        level = [one for one in below if inner[one]]
        if not level:
            break
    if level:
        raise refuse("a tree is deeper than it says")


def check_vectors(
    columns: int,
    support: Any,
    vectors: tuple[int, int],
    counts: Any,
    coefficients: tuple[int, int],
    intercepts: int,
    chances: tuple[int, int],
    *,
    kind: int,
    precomputed: bool,
) -> None:
    """Raise ``STO-D002`` unless a model of libsvm's fits itself and data of `columns`.

    Args:
        columns: of the data that it is asked about.
        support: the number of each support vector among the samples of training.
        vectors: shape of the support vectors; not looked at where `precomputed`.
        counts: how many there are of each class.
        coefficients: shape of the dual coefficients.
        intercepts: how many there are.
        chances: lengths of the two parameter arrays of probabilities, 0 where unused.
        kind: libsvm's number of the model's kind.
        precomputed: whether data are rows of a kernel's matrix.
    """
    total, classes = support.shape[0], counts.shape[0]
    pairs = classes * (classes - 1) // 2
    if support.ndim != 1 or counts.ndim != 1 or classes < 2:  # noqa: PLR2004 - against each other
        raise refuse("support vectors are of no classes")
    if kind in _CLASSIFIERS and ((counts < 0).any() or int(counts.sum()) != total):
        raise refuse("classes have more or fewer support vectors than there are")
    if coefficients != (classes - 1, total) or intercepts != pairs:
        raise refuse("support vectors have more or fewer coefficients")
    if any(length not in {0, pairs} for length in chances):
        raise refuse("classes have more or fewer probabilities")
    if (
        precomputed
        and total
        and not 0 <= int(support.min()) <= int(support.max()) < columns
    ):
        raise refuse("a support vector is none of the samples")
    if not precomputed and vectors != (total, columns):
        raise refuse("support vectors have other columns than the data")


# By class: complete estimators, made of hostile state --------------------------------------

MOST_DEGREE = 64
_METHODS = frozenset({"predict", "predict_proba", "decision_function"})
_TREES = frozenset({"kd_tree", "ball_tree"})
_FREE_METRICS = frozenset(
    {"chebyshev", "cityblock", "euclidean", "l1", "l2", "manhattan"}
)
_KINDS = ("c_svc", "nu_svc", "one_class", "epsilon_svr", "nu_svr")


def _np() -> Any:
    return importlib.import_module("numpy")


def _is_matrix(value: Any, columns: int) -> bool:
    if type(value) is not _np().ndarray or value.ndim != 2:  # noqa: PLR2004 - rows and columns
        return False
    return bool(value.dtype.kind == "f" and value.shape[1] == columns)


def _check_tree(made: Any) -> None:
    if "tree_" not in vars(made):
        return
    kind = importlib.import_module("sklearn.tree._tree").Tree
    if type(made.tree_) is not kind or made.tree_.n_features != made.n_features_in_:
        raise refuse("a tree was grown on other columns")


def _check_forest(made: Any) -> None:
    for one in vars(made).get("estimators_", ()):
        _check_member(one, made.n_features_in_)


def _check_member(one: Any, features: int) -> None:
    if "tree_" not in vars(one) or one.n_features_in_ != features:
        raise refuse("a tree of a forest is none over its columns")


def _check_boosting(made: Any) -> None:
    if "estimators_" not in vars(made):
        return
    if made.init is not None:
        raise refuse("gradient boosting with init= does not travel")
    trees, first = made.estimators_, made.init_
    _check_counts(made, trees)
    for one in trees.ravel():
        _check_member(one, made.n_features_in_)
        if type(one).__name__ != "DecisionTreeRegressor" or one.tree_.n_outputs != 1:
            raise refuse("a stage of gradient boosting is no regression tree")
    if type(first).__name__ == "DummyClassifier":
        whole = first.n_outputs_ == 1 and len(first.class_prior_) == made.n_classes_
    else:
        alike = type(first).__name__ == "DummyRegressor" and first.n_outputs_ == 1
        whole = alike and first.constant_.shape == (1, 1) and trees.shape[1] == 1
    if not whole:
        raise refuse("gradient boosting begins with predictions of another shape")
    made._loss = made._get_loss(sample_weight=None)


def _check_counts(made: Any, trees: Any) -> None:
    kind = type(made).__name__
    classes = made.n_classes_ if kind == "GradientBoostingClassifier" else 1
    if type(classes) not in {int, _np().int64} or not 0 < classes <= 1 << 20:
        raise refuse("gradient boosting has no classes")
    wide = classes if classes > 2 else 1  # noqa: PLR2004 - two classes have one tree
    flat = type(trees) is _np().ndarray and trees.dtype == object and trees.ndim == 2  # noqa: PLR2004
    if not flat or not trees.size or trees.shape[1] != wide:
        raise refuse("gradient boosting has other trees than classes")
    if made.n_trees_per_iteration_ != wide:
        raise refuse("gradient boosting has other trees than classes")


def _check_libsvm(made: Any) -> None:
    if "support_" not in vars(made):
        return
    if made._sparse or callable(made.kernel):
        raise refuse("a model of support vectors over sparse data or an own kernel")
    alone = made.kernel == "precomputed"
    check_vectors(
        int(made.shape_fit_[0]) if alone else int(made.n_features_in_),
        made.support_,
        made.support_vectors_.shape,
        made._n_support,
        made._dual_coef_.shape,
        len(made._intercept_),
        (len(made._probA), len(made._probB)),
        kind=_KINDS.index(made._impl),
        precomputed=alone,
    )


def _check_means(made: Any) -> None:
    made._n_threads = 1
    if "cluster_centers_" not in vars(made):
        return
    centers = made.cluster_centers_
    flat = _is_matrix(centers, made.n_features_in_) and centers.flags.c_contiguous
    if not flat or len(centers) != made.n_clusters:
        raise refuse("cluster centres are others than columns and clusters")


def _check_neighbours(made: Any) -> None:
    if "_fit_X" not in vars(made):
        return
    np, data = _np(), made._fit_X
    if type(data) is np.ndarray:
        if not _is_matrix(data, made.n_features_in_) or not data.flags.c_contiguous:
            raise refuse("neighbours have other columns")
    elif data.shape[1] != made.n_features_in_:
        raise refuse("neighbours have other columns")
    else:
        check_sparse(data)
    if made.n_samples_fit_ != data.shape[0]:
        raise refuse("there are more or fewer neighbours")
    _check_labels(made, data.shape[0])
    made._tree = None
    if made._fit_method in _TREES:
        made._tree = _grow(made)


def _check_labels(made: Any, count: int) -> None:
    if "_y" not in vars(made):
        return
    labels = made._y
    if len(labels) != count:
        raise refuse("neighbours have more or fewer targets")
    if "classes_" not in vars(made):
        return
    classes = made.classes_ if made.outputs_2d_ else [made.classes_]
    columns = labels.reshape(count, -1)
    if labels.dtype.kind != "i" or columns.shape[1] != len(classes):
        raise refuse("neighbours have targets of no classes")
    for place, known in enumerate(classes):
        column = columns[:, place]
        if count and not 0 <= int(column.min()) <= int(column.max()) < len(known):
            raise refuse("a neighbour is of no class")


def _grow(made: Any) -> Any:
    """Return the tree over the data: it is made again, never sent."""
    metric, params = made.effective_metric_, made.effective_metric_params_
    free = metric in _FREE_METRICS and not params
    p = params.get("p", 0) if type(params) is dict and set(params) <= {"p"} else 0
    if not free and not (metric == "minkowski" and type(p) in {int, float} and p >= 1):
        raise refuse("neighbours by this metric do not travel")
    name = "KDTree" if made._fit_method == "kd_tree" else "BallTree"
    kind = getattr(importlib.import_module("sklearn.neighbors"), name)
    if type(made.leaf_size) is not int or made.leaf_size < 1:
        raise refuse("a leaf has no size")
    return kind(made._fit_X, made.leaf_size, metric=metric, **params)


def _check_vocabulary(made: Any) -> None:
    for name in ("vocabulary_", "vocabulary"):
        words = vars(made).get(name)
        if type(words) is dict and sorted(words.values()) != list(range(len(words))):
            raise refuse("a vocabulary's places do not follow each other")
    inner = vars(made).get("_tfidf")
    if inner is not None and type(inner).__name__ != "TfidfTransformer":
        raise refuse("a vectoriser weighs with no weights")


def _check_codes(made: Any) -> None:
    if "categories_" not in vars(made):
        return
    if made._infrequent_enabled:
        raise refuse("an encoder that groups rare categories does not travel")
    for one in made.categories_:
        numbers = one[one == one] if one.dtype.kind in "iuf" else one[:0]  # noqa: PLR0124 - not NaN
        if one.ndim != 1 or (numbers[1:] <= numbers[:-1]).any():
            raise refuse("categories are not in order")
    if type(made).__name__ == "OneHotEncoder":
        _check_dropped(made)
        made._n_features_outs = made._compute_n_features_outs()


def _check_dropped(made: Any) -> None:
    dropped = made.drop_idx_
    made._drop_idx_after_grouping = dropped
    if dropped is None:
        return
    if len(dropped) != len(made.categories_):
        raise refuse("an encoder drops other columns")
    for place, known in zip(dropped, made.categories_, strict=True):
        if place is not None and not 0 <= int(place) < len(known):
            raise refuse("an encoder drops a category that there is not")


def _check_powers(made: Any) -> None:
    if "_n_out_full" not in vars(made):
        return
    low, high = made.degree if type(made.degree) is tuple else (0, made.degree)
    if (
        not all(type(one) is int for one in (low, high))
        or not 0 <= low <= high <= MOST_DEGREE
    ):
        raise refuse("powers have no degree")
    count, flags = made._num_combinations, (made.interaction_only, made.include_bias)
    made._min_degree, made._max_degree = low, high
    wide = count(int(made.n_features_in_), low, high, *flags)
    full = count(int(made.n_features_in_), 0, high, *flags)
    if (made.n_output_features_, made._n_out_full) != (wide, full):
        raise refuse("powers have other columns")


def _check_steps(made: Any) -> None:
    if "X_thresholds_" in vars(made):
        if made.X_thresholds_.shape != made.y_thresholds_.shape:
            raise refuse("steps have other heights")
        made._build_f(made.X_thresholds_, made.y_thresholds_)


def _check_stack(made: Any) -> None:
    if not set(vars(made).get("stack_method_", ())) <= _METHODS:
        raise refuse("a stack asks its members for something else")
    if made.__dict__.get("stack_method", "auto") not in _METHODS | {"auto"}:
        raise refuse("a stack asks its members for something else")


def _check_search(made: Any) -> None:
    if "best_estimator_" in vars(made) or "cv_results_" in vars(made):
        if made.scoring is not None and type(made.scoring) is not str:
            raise refuse("a search with scorers of its own does not travel")
        check = importlib.import_module("sklearn.metrics").check_scoring
        made.scorer_ = check(made.estimator, made.scoring)


def _check_link(made: Any) -> None:
    if "coef_" in vars(made):
        made._base_loss = made._get_loss()


def _check_descent(made: Any) -> None:
    if "coef_" not in vars(made):
        return
    shape = made.coef_.shape
    lines = shape[0] if len(shape) == 2 else 1  # noqa: PLR2004 - a line a class
    if shape[-1] != made.n_features_in_ or made.intercept_.shape != (lines,):
        raise refuse("coefficients are others than columns")
    if "classes_" in vars(made):
        classes = len(made.classes_)
        if lines != (classes if classes > 2 else 1):  # noqa: PLR2004 - two classes have one line
            raise refuse("coefficients are of other classes")
    made._loss_function_ = made._get_loss_function(made.loss)


CHECKS: dict[str, Callable[[Any], None]] = {
    "BaseDecisionTree": _check_tree,
    "BaseForest": _check_forest,
    "BaseGradientBoosting": _check_boosting,
    "BaseLibSVM": _check_libsvm,
    "BaseSGDClassifier": _check_descent,
    "BaseSGDRegressor": _check_descent,
    "BaseSearchCV": _check_search,
    "CountVectorizer": _check_vocabulary,
    "IsotonicRegression": _check_steps,
    "NeighborsBase": _check_neighbours,
    "PolynomialFeatures": _check_powers,
    "_BaseEncoder": _check_codes,
    "_BaseKMeans": _check_means,
    "_BaseStacking": _check_stack,
    "_GeneralizedLinearRegressor": _check_link,
}
"""Name of a class of the library's above a listed one → its check."""
