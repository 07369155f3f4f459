"""What fitted models of scikit-learn hold for its loops in C: checked before they run.

Those loops follow a tree's children, and count support vectors, without looking whether
they lie inside; so what came from the wire, or a task could have written into, is looked
at here. Arrays are numpy's; nothing here imports the library.
"""

from __future__ import annotations

from typing import Any

from stoilo.core.errors import TrustError

MOST_NODES = 2**31 - 1
_NO_CHILD = -1
_CLASSIFIERS = frozenset({0, 1})  # C-SVC and nu-SVC, as libsvm numbers its kinds


def refuse(message: str) -> TrustError:
    """Return the refusal ``STO-D002`` of a fitted model that is none."""
    return TrustError("STO-D002", f"a fitted model is malformed: {message}")


def check_nodes(nodes: Any, values: Any, features: int, shape: tuple[int, int]) -> None:
    """Raise ``STO-D002`` unless `nodes` are a tree that never looks outside.

    Args:
        nodes: a record a node, the root first, as the library keeps them: a child comes
            after its parent, so no walk goes in a circle.
        values: of each node, for each output, for each class.
        features: how many columns the data have.
        shape: outputs, and classes of the output that has most.
    """
    count = nodes.shape[0]
    if not 0 < count <= MOST_NODES or values.shape != (count, *shape):
        raise refuse("a tree's values do not fit its nodes")
    left, right, feature = (
        nodes["left_child"],
        nodes["right_child"],
        nodes["feature"],
    )
    inner = left != _NO_CHILD
    if not (inner == (right != _NO_CHILD)).all():
        raise refuse("a tree's node has one child")
    place = inner.nonzero()[0]
    for child in (left[place], right[place]):
        if (child <= place).any() or (child >= count).any():
            raise refuse("a tree's child lies outside or before its parent")
    if (feature[place] < 0).any() or (feature[place] >= features).any():
        raise refuse("a tree asks for a column that there is not")


def check_leaf_order(nodes: Any, *, features: int, sets: int) -> None:
    """As `check_nodes`, for a tree of histogram gradient boosting.

    Args:
        nodes: its records.
        features: how many columns the data have.
        sets: how many sets of categories lie beside it.
    """
    count = nodes.shape[0]
    place = (nodes["is_leaf"] == 0).nonzero()[0]
    if not 0 < count <= MOST_NODES:
        raise refuse("a tree has no nodes")
    for name in ("left", "right"):
        child = nodes[name][place].astype("int64")
        if (child <= place).any() or (child >= count).any():
            raise refuse("a tree's child lies outside or before its parent")
    feature = nodes["feature_idx"][place]
    if (feature < 0).any() or (feature >= features).any():
        raise refuse("a tree asks for a column that there is not")
    chosen = nodes["bitset_idx"][place][nodes["is_categorical"][place] != 0]
    if (chosen >= sets).any():
        raise refuse("a tree names a set of categories that there is not")


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
