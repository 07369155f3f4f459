"""Estimators of scikit-learn, fitted or not, as nodes and back.

A node's state is the constructor's parameters and what fitting left: names with a ``_`` at
the end and the few private ones of `_KEPT`. A class listed by the library's file is called
with the parameters, which only stores them, and the rest is set; nothing of the wire is
unpickled. What the library's loops in C believe is checked by class (`fitted.CHECKS`), what
they keep beside is made again from it. Trust: nodes are hostile.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from stoilo.core.codec import nodes
from stoilo.core.codec.estimator_parts import PART, pack, unpack
from stoilo.core.codec.fitted import CHECKS, check_nodes, refuse
from stoilo.core.errors import StoiloError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.core.codec.nodes import Instance, Node

TREE = "sklearn.tree._tree.Tree"
_FIELDS = (
    *("left_child", "right_child", "feature", "threshold", "impurity"),
    *("n_node_samples", "weighted_n_node_samples", "missing_go_to_left"),
)

# Private attributes that fitting leaves and predictions need
_KEPT = frozenset(
    {"_algorithm", "_average_path_length_per_tree", "_best_coefs", "_best_intercepts"}
    | {
        "_centerer",
        "_checked_cv_orig",
        "_columns",
        "_decision_path_lengths",
        "_drop_idx_after_grouping",
    }
    | {"_dual_coef_", "_effective_probability", "_encoder", "_expanded_class_weight"}
    | {
        "_fill_dtype",
        "_fit_X",
        "_fit_dtype",
        "_fit_method",
        "_fit_svd_solver",
        "_gamma",
    }
    | {"_infrequent_enabled", "_intercept_", "_label_binarizer", "_label_encoder"}
    | {"_mask_fit_X", "_max_components", "_max_degree", "_max_features", "_max_samples"}
    | {"_min_degree", "_missing_indices", "_n_feature_outs", "_n_features"}
    | {"_n_features_out", "_sklearn_output_config"}
    | {
        "_n_features_outs",
        "_n_init",
        "_n_out_full",
        "_n_samples",
        "_n_samples_bootstrap",
    }
    | {"_n_support", "_name_to_fitted_passthrough", "_no_improvement_count"}
    | {
        "_norm_y_weights",
        "_num_iter",
        "_precomputed",
        "_predict_1d",
        "_probA",
        "_probB",
    }
    | {"_random_state", "_remainder", "_rng", "_sample_weight", "_scaler", "_seeds"}
    | {"_sparse", "_strategy", "_tfidf", "_tol", "_training_dim", "_unmixing"}
    | {"_transformer_to_input_indices", "_valid_mask", "_x_mean", "_x_scores", "_x_std"}
    | {"_y", "_y_mean", "_y_scores", "_y_std", "_y_train_mean", "_y_train_std"}
)

# What the other side makes again, or can do without
_MADE_AGAIN = frozenset(
    {
        "_base_loss",
        "_loss",
        "_loss_function_",
        "_n_threads",
        "_optimizer",
        "_tree",
        "f_",
    }
    | {"_stop_words_id", "scorer_"}
)


# To nodes -------------------------------------------------------------------------------


def to_node(value: Any, name: str, convert: Callable[[object], Node]) -> Instance:
    """Return the node of `value`, an estimator, kernel, splitter or tree listed as `name`.

    Raises:
        UsageError: ``STO-D001``, something in it does not travel.
    """
    if name == TREE:
        return _tree_node(value, convert)
    held, kind = vars(value), type(value)
    given = {one: held[one] for one in _parameters(kind) if one in held}
    made = set(vars(kind(**given)))  # what the constructor stores beside its parameters
    state = {}
    for key, one in held.items():
        if key in given or (key not in made and _travels(key, kind)):
            state[key] = pack(one, convert)
    return nodes.Instance(name, state)


def _parameters(kind: type) -> tuple[str, ...]:
    """Return the names of the constructor's parameters."""
    found = inspect.signature(kind.__init__).parameters  # type: ignore[misc]  # of a listed class
    return tuple(found)[1:]


def _travels(key: str, kind: type) -> bool:
    """Whether the attribute `key` goes into the state; refuse what would be missed."""
    if key in _MADE_AGAIN:
        return False
    if is_fitted_name(key, kind):
        return True
    raise UsageError(
        "STO-D001",
        f"a fitted {kind.__name__:.64} does not travel: it keeps {key:.64}",
        hint="send it unfitted, or its predictions and arrays",
    )


def is_fitted_name(key: str, kind: type) -> bool:
    """Whether `key` (hostile) names what fitting leaves on instances of `kind`."""
    if not key.isidentifier() or key in _MADE_AGAIN:
        return False
    if key in _KEPT:
        return True
    public = key.endswith("_") and not key.startswith("_")
    return public and not hasattr(kind, key)


def _tree_node(tree: Any, convert: Callable[[object], Node]) -> Instance:
    state = tree.__getstate__()
    parts = {field: convert(state["nodes"][field].copy()) for field in _FIELDS}
    shape = (int(tree.n_features), convert(tree.n_classes.copy()), int(tree.n_outputs))
    rest = {"values": convert(state["values"]), "depth": int(state["max_depth"])}
    return nodes.Instance(TREE, {**parts, **rest, "shape": shape})


# From nodes -----------------------------------------------------------------------------


def from_node(node: Instance, convert: Callable[[Node], object]) -> Any:
    """Return what `node` (hostile) stands for.

    Raises:
        TrustError: ``STO-D002``, it is malformed.
    """
    if node.base is not None or node.class_name == PART:
        raise refuse("it is a part of none")
    try:
        return (
            _make_tree(node, convert)
            if node.class_name == TREE
            else _make(node, convert)
        )
    except StoiloError:
        raise
    except Exception as error:  # noqa: BLE001 - the library's own checks, over what is hostile
        raise refuse(f"{type(error).__name__}: {error!s:.200}") from None


def _make(node: Instance, convert: Callable[[Node], Any]) -> Any:
    module, _, name = node.class_name.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    names = _parameters(kind)
    given = {key: one for key, one in node.state.items() if key in names}
    rest = {key: one for key, one in node.state.items() if key not in names}
    for key in rest:
        if not is_fitted_name(key, kind):
            raise refuse(f"a {name:.64} has no attribute {key!r:.64}")
    values = {key: unpack(one, convert) for key, one in given.items()}
    _check_parameters(values)
    made = kind(**values)
    vars(made).update({key: unpack(one, convert) for key, one in rest.items()})
    if not _is_config(vars(made).get("_sklearn_output_config", {})):
        raise refuse("its output is of no kind")
    for cls in type(made).__mro__:
        if check := CHECKS.get(cls.__name__):
            check(made)
    return made


def _check_parameters(values: dict[str, object]) -> None:
    """Refuse parameters that open files, or name attributes that no source may spell."""
    if values.get("memory") is not None:
        raise refuse("memory= keeps results in files")
    if values.get("input", "content") != "content":
        raise refuse("input= reads files")
    getter = values.get("importance_getter", "auto")
    if isinstance(getter, str) and not _is_path(getter):
        raise refuse("importance_getter= names no public attribute")


def _is_config(found: object) -> bool:
    kinds = {"default", "pandas", "polars", None}
    return type(found) is dict and all(one in kinds for one in found.values())


def _is_path(dotted: str) -> bool:
    parts = dotted.split(".")
    return all(one.isidentifier() and not one.startswith("_") for one in parts)


def _make_tree(node: Instance, convert: Callable[[Node], Any]) -> Any:
    np: Any = importlib.import_module("numpy")
    kind: Any = importlib.import_module("sklearn.tree._tree").Tree
    if set(node.state) != {*_FIELDS, "values", "depth", "shape"}:
        raise refuse("a tree has other parts")
    features, classes, outputs = node.state["shape"]
    classes = convert(classes)
    if (
        type(features) is not int
        or type(outputs) is not int
        or type(depth := node.state["depth"]) is not int
    ):
        raise refuse("a tree's shape is none")
    if classes.dtype != np.intp or classes.shape != (outputs,) or (classes < 1).any():
        raise refuse("a tree's classes are none")
    made = kind(features, classes, outputs)
    records = np.zeros(len(convert(node.state["left_child"])), _node_dtype())
    for field in _FIELDS:
        records[field] = _column(convert(node.state[field]), records.dtype[field])
    values = _column(convert(node.state["values"]), np.dtype("float64"))
    if not 0 <= depth < len(records):
        raise refuse("a tree is deeper than it has nodes")
    check_nodes(records, values, features, (outputs, int(classes.max())), depth)
    made.__setstate__(
        {
            "max_depth": depth,
            "node_count": len(records),
            "nodes": records,
            "values": values,
        }
    )
    return made


def _column(array: Any, dtype: Any) -> Any:
    if array.dtype != dtype:
        raise refuse("a tree's column is of another type")
    return array


def _node_dtype() -> Any:
    return importlib.import_module("sklearn.tree._tree").NODE_DTYPE
