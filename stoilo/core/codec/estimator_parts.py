"""What lies inside estimators beside plain values: arrays of texts, slices, types, generators.

Each is an `Instance` of the class name `PART` with its form and parts as state. Trust:
nodes are hostile; every form is checked, none runs code that a node names.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from stoilo.core.codec import nodes
from stoilo.core.codec.fitted import refuse
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.core.codec.nodes import Instance, Node

PART = "sklearn.base.BaseEstimator"
"""Stands for a part: no estimator is of this class itself."""

MOST_DEPTH = 32
_TWISTER_WORDS = 624
_WORD = 1 << 32
_STATE = 1 << 128

_SCORES = "sklearn.feature_selection"
_FUNCTIONS = {
    _SCORES: frozenset({"chi2", "f_classif", "f_regression", "mutual_info_classif"})
    | {"mutual_info_regression", "r_regression", "f_oneway"},
}
"""Functions of libraries that are parameters: by module."""

_TYPES = frozenset(
    {"bool", "float", "int", "str", "object", "float32", "float64", "int8", "int16"}
    | {"int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
_PYTHON = {"bool": bool, "float": float, "int": int, "str": str, "object": object}


def _numpy() -> Any:
    return importlib.import_module("numpy")


def part(form: str, **parts: Node) -> Instance:
    """Return the node of a part."""
    return nodes.Instance(PART, {"form": form, **parts})


# To nodes ------------------------------------------------------------------------------


def pack(value: Any, convert: Callable[[object], Node], depth: int = 0) -> Node:
    """Return the node of `value`, which lies in an estimator.

    Raises:
        UsageError: ``STO-D001``, it does not travel; ``STO-D005``, it is nested too deep.
    """
    if depth > MOST_DEPTH:
        raise UsageError("STO-D005", "an estimator is nested too deep or holds itself")
    kind: Any = type(value)
    if kind in {list, tuple}:
        return kind([pack(one, convert, depth + 1) for one in value])
    if kind is dict or _is_bunch(kind):
        items = {key: pack(one, convert, depth + 1) for key, one in value.items()}
        return items if kind is dict else part("bunch", items=items)
    if kind in {slice, type, range}:
        return _pack_plain(value, kind)
    if str(kind.__module__).partition(".")[0] == "numpy":
        return _pack_numpy(value, convert, depth)
    if callable(value) and (found := _function_name(value)):
        return part("function", module=found[0], name=found[1])
    return convert(value)


def _is_bunch(kind: type) -> bool:
    return (kind.__module__, kind.__name__) == ("sklearn.utils._bunch", "Bunch")


def _pack_plain(value: Any, kind: type) -> Node:
    if kind in {slice, range}:
        return part(kind.__name__, ends=(value.start, value.stop, value.step))
    if value.__module__ in {"numpy", "builtins"} and value.__name__ in _TYPES:
        return part("type", name=value.__name__)
    raise UsageError(
        "STO-D001", f"the class {value.__name__:.64} does not travel in a model"
    )


def _pack_numpy(value: Any, convert: Callable[[object], Node], depth: int) -> Node:
    np = _numpy()
    if isinstance(value, np.ndarray):
        return _pack_array(value, convert, depth)
    if isinstance(value, np.dtype):
        return part(
            "dtype", name="object" if value.hasobject else nodes._dtype_name(value)
        )
    if type(value) is np.random.RandomState:
        return _pack_twister(value)
    if type(value) is np.random.Generator:
        return _pack_generator(value)
    name = str(getattr(value, "__name__", ""))
    if type(value) is np.ufunc and getattr(np, name, None) is value:
        return part("function", module="numpy", name=name)
    return convert(value)


def _pack_array(value: Any, convert: Callable[[object], Node], depth: int) -> Node:
    np = _numpy()
    if isinstance(value, np.ma.MaskedArray):
        data = pack(np.asarray(value.data), convert, depth + 1)
        return part("masked", data=data, mask=convert(np.ma.getmaskarray(value)))
    if value.dtype.hasobject and value.dtype.names is None:
        items = [pack(one, convert, depth + 1) for one in value.ravel().tolist()]
        return part("objects", items=items, shape=tuple(value.shape))
    if value.flags.f_contiguous > value.flags.c_contiguous:
        return part(
            "columns", data=convert(value.T)
        )  # sums run as they did: equal bits
    return convert(value)


def _pack_twister(value: Any) -> Node:
    kind, words, place, has_gauss, cached = value.get_state(legacy=True)
    if kind != "MT19937":
        raise UsageError("STO-D001", f"a RandomState over {kind} does not travel")
    spare = (int(has_gauss), float(cached))
    return part("twister", words=words.tolist(), place=int(place), spare=spare)


def _pack_generator(value: Any) -> Node:
    state = value.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise UsageError("STO-D001", "of numpy's generators PCG64 travels in a model")
    inner = (state["state"]["state"], state["state"]["inc"])
    return part(
        "generator", state=inner, spare=(state["has_uint32"], state["uinteger"])
    )


def _function_name(value: Any) -> tuple[str, str] | None:
    name = getattr(value, "__name__", "")
    for module, names in _FUNCTIONS.items():
        holder = sys.modules.get(module)
        if name in names and getattr(holder, name, None) is value:
            return module, name
    return None


# From nodes -----------------------------------------------------------------------------


def unpack(node: Node, convert: Callable[[Node], Any], depth: int = 0) -> Any:
    """Return the value of `node` (hostile), which lies in an estimator.

    Raises:
        TrustError: ``STO-D002``, it is malformed.
    """
    if depth > MOST_DEPTH:
        raise refuse("it is nested too deep")
    kind = type(node)
    if kind in {list, tuple}:
        return kind([unpack(one, convert, depth + 1) for one in node])
    if kind is dict:
        return {key: unpack(one, convert, depth + 1) for key, one in node.items()}
    if kind is nodes.Instance and node.class_name == PART:
        return _unpack_part(node, convert, depth)
    return convert(node)


def _unpack_part(node: Instance, convert: Callable[[Node], Any], depth: int) -> Any:
    parts = dict(node.state)
    form = parts.pop("form", None)
    read = _READERS.get(form) if type(form) is str else None
    if read is None or node.base is not None:
        raise refuse("a part of it has no form")
    try:
        return read(lambda one: unpack(one, convert, depth + 1), **parts)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise refuse(f"a part of it does not fit its form: {error!s:.64}") from None


def _read_bunch(read: Any, *, items: Any) -> Any:
    found = read(items)
    if type(found) is not dict or not all(_is_public(key) for key in found):
        raise refuse("names in it are none")
    made: Any = importlib.import_module("sklearn.utils").Bunch
    return made(**found)


def _is_public(name: object) -> bool:
    return type(name) is str and name.isidentifier() and not name.startswith("_")


def _read_ends(kind: Any) -> Any:
    def made(_read: Any, *, ends: Any) -> Any:
        if not all(one is None or type(one) is int for one in ends):
            raise refuse("a slice has no ends")
        return kind(*ends)

    return made


def _read_type(_read: Any, *, name: Any) -> Any:
    if name not in _TYPES:
        raise refuse("it names a type that does not travel")
    return _PYTHON.get(name) or getattr(_numpy(), name)


def _read_function(_read: Any, *, module: Any, name: Any) -> Any:
    if module == "numpy":
        found = getattr(_numpy(), name, None) if _is_public(name) else None
        if type(found) is not _numpy().ufunc:
            raise refuse("it names a function that does not travel")
        return found
    if name not in _FUNCTIONS.get(module, ()):
        raise refuse("it names a function that does not travel")
    return getattr(importlib.import_module(module), name)


def _read_masked(read: Any, *, data: Any, mask: Any) -> Any:
    np = _numpy()
    data, mask = read(data), read(mask)
    if (
        type(data) is not np.ndarray
        or mask.dtype != np.bool_
        or data.shape != mask.shape
    ):
        raise refuse("a masked array has another mask")
    return np.ma.MaskedArray(data, mask=mask)


def _read_columns(read: Any, *, data: Any) -> Any:
    return read(data).T


def _read_objects(read: Any, *, items: Any, shape: Any) -> Any:
    if type(items) is not list or type(shape) is not tuple:
        raise refuse("an array of objects has no items or shape")
    made = _numpy().empty(len(items), dtype=object)
    for place, one in enumerate(items):
        made[place] = read(one)
    return made.reshape(shape)


def _read_dtype(_read: Any, *, name: Any) -> Any:
    if name != "object":
        nodes.item_bytes(name)
    return _numpy().dtype(name)


def _read_twister(_read: Any, *, words: Any, place: Any, spare: Any) -> Any:
    whole = len(words) == _TWISTER_WORDS and all(_below(one, _WORD) for one in words)
    if not whole or not _below(place, _TWISTER_WORDS + 1) or spare[0] not in {0, 1}:
        raise refuse("a generator's state is none")
    random = _numpy().random
    made = random.RandomState(random.MT19937(0))
    words = _numpy().array(words, dtype="uint32")
    made.set_state(("MT19937", words, place, int(spare[0]), float(spare[1])))
    return made


def _read_generator(_read: Any, *, state: Any, spare: Any) -> Any:
    if not all(_below(one, _STATE) for one in state) or state[1] % 2 == 0:
        raise refuse("a generator's state is none")
    if spare[0] not in {0, 1} or not _below(spare[1], _WORD):
        raise refuse("a generator's state is none")
    random = _numpy().random
    made = random.PCG64(0)
    made.state = {
        "bit_generator": "PCG64",
        "state": {"state": state[0], "inc": state[1]},
        "has_uint32": int(spare[0]),
        "uinteger": spare[1],
    }
    return random.Generator(made)


def _below(number: object, bound: int) -> bool:
    return type(number) is int and 0 <= number < bound


_READERS: dict[str, Callable[..., Any]] = {
    "bunch": _read_bunch,
    "columns": _read_columns,
    "dtype": _read_dtype,
    "function": _read_function,
    "generator": _read_generator,
    "masked": _read_masked,
    "objects": _read_objects,
    "range": _read_ends(range),
    "slice": _read_ends(slice),
    "twister": _read_twister,
    "type": _read_type,
}
