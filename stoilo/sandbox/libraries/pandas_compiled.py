"""pandas: compiled code that trusts what it is called with, or what a task's objects say.

Cython finds the type of an argument by ways that the sandbox closes, takes anything for
``self``, and walks objects twice in the belief that they compare the same both times.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

from stoilo.sandbox.language.hardening import (
    bind_method,
    bind_receivers,
    replace_member,
)
from stoilo.sandbox.language.ownership import class_dict, class_mro, is_own_class
from stoilo.sandbox.language.rules import Closed, GuardError, kind_name

_lib: Any = importlib.import_module("pandas._libs.lib")


# Values of the task's that answer another way the second time -------------------------


_EXACT = frozenset({bool, float, int, str, type(None)})


def guard_joins() -> None:
    """Let indexes of foreign objects be joined by hash, not by two walks of C code.

    The first walk counts, the second writes: an object that compares itself in another
    way then writes past the end.
    """
    index: Any = pd.Index
    real = class_dict(index)["_can_use_libjoin"].fget

    def can_use_libjoin(self: Any) -> bool:
        if not real(self):
            return False
        walked = self.dtype.kind != "O" or _EXACT.issuperset(map(type, self.array))
        return bool(walked)

    index._can_use_libjoin = property(can_use_libjoin)  # noqa: SLF001 - asked there only
    table: Any = importlib.import_module("pandas._libs.hashtable")
    table.value_count = _count_objects(table.value_count)
    for name in ("to_object_array", "to_object_array_tuples"):
        setattr(_lib, name, _own_list(getattr(_lib, name)))


def _holds_own(values: Any) -> bool:
    """Whether an object of a class of the task's is in `values`, or in a tuple there."""
    kinds = set(map(type, values))
    if kinds & {tuple, frozenset}:
        inner = (one for one in values if isinstance(one, tuple | frozenset))
        kinds.update(type(part) for one in inner for part in one)
    return any(map(is_own_class, kinds))


def _count_objects(real: Any) -> Any:
    """Return ``value_count`` that counts foreign objects in a dict.

    The library looks each object up again and reads what stands there, found or not.
    """

    def value_count(values: Any, dropna: Any, mask: Any = None, **options: Any) -> Any:
        if values.dtype.kind != "O" or not _holds_own(values):
            return real(values, dropna, mask=mask, **options)
        places: dict[object, int] = {}
        found: list[object] = []
        counts: list[int] = []
        for one in values:
            missing = pd.api.types.is_scalar(one) and bool(pd.isna(one))
            if missing and dropna:
                continue
            place = places.setdefault(type(one) if missing else one, len(found))
            if place == len(found):
                found.append(one)
                counts.append(0)
            counts[place] += 1
        keys = np.empty(len(found), object)
        for place, one in enumerate(found):
            keys[place] = one
        return keys, np.array(counts, np.int64), 0

    return value_count


def _own_list(real: Any) -> Any:
    # C walks the list while the task's objects are asked for their lengths
    def function(rows: Any, *args: Any, **options: Any) -> Any:
        return real(list(rows), *args, **options)

    return function


# Compiled functions of several types: objects go to theirs without a ``memoryview`` ------
#
# To find the type of an argument Cython takes a ``memoryview`` of it, which arrays of
# objects refuse: whoever holds one writes addresses.


def guard_fused() -> None:
    modules = [mod for name, mod in sys.modules.items() if name.startswith("pandas.")]
    made: dict[int, Any] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if type(value).__name__ != "fused_cython_function":
                continue
            if id(value) not in made:
                made[id(value)] = _by_type(value)
            vars(module)[name] = made[id(value)]
    ops: Any = importlib.import_module("pandas.core.groupby.ops")
    for table in ops.WrappedCythonOp._CYTHON_FUNCTIONS.values():  # noqa: SLF001 - its own
        for name, kept in table.items():
            if isinstance(kept, functools.partial):
                real = _by_type(kept.func)
                table[name] = functools.partial(real, *kept.args, **kept.keywords)


def _by_type(real: Any) -> Any:
    """Return the fused function `real`, which asks arrays of objects for no buffer."""
    keys = getattr(real, "__signatures__", {})
    flat = "ndarray[Python object,ndim={}]"
    by_dimensions = {ndim: keys.get(flat.format(ndim)) for ndim in (1, 2)}
    plain = keys.get("object")
    if plain is None and not any(by_dimensions.values()):
        return real

    @functools.wraps(real, updated=())
    def function(*args: Any, **options: Any) -> Any:
        for one in (*args, *options.values()):
            if isinstance(one, np.ndarray) and one.dtype.kind == "O":
                chosen = plain or by_dimensions.get(one.ndim) or real
                return chosen(*args, **options)
        return real(*args, **options)

    return function


# Classes written in Cython: their methods take anything for ``self`` ------------------


_CACHED: Any = importlib.import_module("pandas._libs.properties").CachedProperty
_SCALARS = (pd.Timestamp, pd.Timedelta, pd.Period, pd.Interval, pd.DateOffset)
_NEEDING_STAMPS = tuple(
    f"is_{part}_{side}"
    for part in ("month", "quarter", "year")
    for side in ("start", "end")
)
"""Methods of offsets that take None for a moment and die of it; moments have them too."""

_inherits: Any = type.__dict__["__subclasscheck__"]


def guard_receivers() -> None:
    offsets: Any = importlib.import_module("pandas._libs.tslibs.offsets")
    for name in _NEEDING_STAMPS:
        replace_member(offsets.BaseOffset, name, Closed("BaseOffset", name))
    kinds = [kind for kind in vars(offsets).values() if isinstance(kind, type)]
    kinds += [
        *_SCALARS,
        type(pd.NaT),
        type(pd.NA),
        *_walk(pd.api.extensions.ExtensionArray),
    ]
    sparse: Any = importlib.import_module("pandas._libs.sparse")
    kinds += [sparse.IntIndex, sparse.BlockIndex, pd.CategoricalDtype, *_walk(pd.Index)]
    owners = {base: None for kind in kinds for base in class_mro(kind)}
    for owner in owners:
        if owner.__module__.startswith("pandas"):
            _check_receivers(owner)
    bind_receivers(_walk(pd.api.extensions.ExtensionArray))
    bind_receivers([*_walk(pd.api.extensions.ExtensionDtype), np.record])


def _walk(cls: type) -> Iterator[type]:
    yield cls
    below: list[type] = type.__subclasses__(cls)
    for one in below:
        yield from _walk(one)


def _check_receivers(owner: type) -> None:
    for name, member in list(class_dict(owner).items()):
        if name.startswith("_"):
            continue
        if type(member).__name__ == "cython_function_or_method":
            replace_member(owner, name, _for_instances(owner, name, member))
        elif type(member) is _CACHED and type(member.fget) is FunctionType:
            bound = bind_method(owner, name, member.fget)
            replace_member(owner, name, _CACHED(bound))


def _for_instances(owner: type, name: str, function: Any) -> Any:
    inherits = _inherits.__get__(owner)

    @functools.wraps(function, updated=())
    def method(self: Any, /, *args: Any, **options: Any) -> Any:
        if not inherits(type(self)):
            raise GuardError(
                "STO-G108",
                f"{name}() of {owner.__name__} was called on a {kind_name(type(self))}",
                hint="a library's method works on instances of its own class",
            )
        return function(self, *args, **options)

    return method
