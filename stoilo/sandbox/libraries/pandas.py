"""`pandas`: in memory only, no text that is evaluated, no array that its C code trusts.

Most of it is done to the classes themselves, once, in the zygote: tasks meet instances.
Codes of categories and levels index memory without a look at bounds, so no task gets hold of
the arrays in which they stand, and whoever brings some has them copied and checked.
"""

from __future__ import annotations

import functools
import importlib
import sys
import zoneinfo
from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_memory import admit_typed_readers
from stoilo.sandbox.language.hardening import (
    bind_method,
    bind_receivers,
    replace_member,
)
from stoilo.sandbox.language.ownership import class_dict, class_mro
from stoilo.sandbox.language.rules import Closed, GuardError, kind_name
from stoilo.sandbox.language.substitutes import StandIn, by_name, hide_class
from stoilo.sandbox.libraries.pandas_names import (
    get_option,
    guard_masks,
    guard_names,
    guard_texts,
    option_context,
    reset_option,
    set_option,
)

_lib: Any = importlib.import_module("pandas._libs.lib")


# Codes: arrays that nobody can make writable ------------------------------------------


def _sealed(codes: Any) -> Any:
    """Return `codes` over a read-only buffer, which numpy lets nobody write to again."""
    if not codes.size or not codes.flags.c_contiguous:
        return codes.copy()
    return np.frombuffer(memoryview(codes).toreadonly(), dtype=codes.dtype)


def _guard_categories() -> None:
    categorical: Any = pd.Categorical
    real = vars(categorical)["from_codes"].__func__
    view = categorical.view

    @functools.wraps(real)
    def from_codes(
        cls: Any,
        codes: Any,
        categories: Any = None,
        ordered: Any = None,
        dtype: Any = None,
        validate: Any = True,
    ) -> Any:
        del validate
        return real(cls, np.array(codes), categories, ordered, dtype)

    @functools.wraps(view)
    def view_copy(self: Any, dtype: Any = None) -> Any:
        return view(self if dtype is None else self.copy(), dtype)

    categorical.from_codes = classmethod(from_codes)
    categorical.view = view_copy
    categorical.codes = property(lambda self: _sealed(self._codes))


def _guard_levels() -> None:
    index: Any = pd.MultiIndex
    frozen = importlib.import_module("pandas.core.indexes.frozen").FrozenList
    set_codes, set_levels = index.set_codes, index.set_levels

    @functools.wraps(set_codes)
    def set_copies(
        self: Any, codes: Any, *, level: Any = None, verify_integrity: Any = True
    ) -> Any:
        del verify_integrity
        return set_codes(self, _copies(codes), level=level)

    @functools.wraps(set_levels)
    def set_checked(
        self: Any, levels: Any, *, level: Any = None, verify_integrity: Any = True
    ) -> Any:
        del verify_integrity
        return set_levels(self, levels, level=level)

    index.codes = property(lambda self: frozen(map(_sealed, self._codes)))
    index.set_codes, index.set_levels = set_copies, set_checked


def _copies(codes: Any) -> Any:
    return [np.array(one) if np.ndim(one) else one for one in codes]


class MultiIndex(metaclass=StandIn):
    """Stands for ``pandas.MultiIndex``, whose codes are always checked."""

    __stoilo_real__ = pd.MultiIndex

    def __new__(
        cls,
        levels: Any = None,
        codes: Any = None,
        sortorder: Any = None,
        names: Any = None,
        copy: Any = False,
        name: Any = None,
        verify_integrity: Any = True,
    ) -> Any:
        del verify_integrity
        if codes is not None:
            codes = _copies(codes)
        return pd.MultiIndex(levels, codes, sortorder, names, copy=copy, name=name)

    from_arrays = staticmethod(pd.MultiIndex.from_arrays)
    from_frame = staticmethod(pd.MultiIndex.from_frame)
    from_product = staticmethod(pd.MultiIndex.from_product)
    from_tuples = staticmethod(pd.MultiIndex.from_tuples)


MultiIndex.__module__ = "pandas"


def _guard_sparse() -> None:
    sparse: Any = importlib.import_module("pandas._libs.sparse")
    for cls, names in (
        (sparse.IntIndex, ("indices",)),
        (sparse.BlockIndex, ("blengths", "blocs")),
    ):
        for name in names:
            getter = class_dict(cls)[name].__get__
            replace_member(cls, name, property(_copying(getter)))
    array: Any = pd.arrays.SparseArray
    real = vars(array)["from_indices"].__func__

    @functools.wraps(real)
    def from_indices(
        cls: Any, data: Any, indices: Any, *args: Any, **options: Any
    ) -> Any:
        return real(cls, data, np.array(indices), *args, **options)

    array.from_indices = classmethod(from_indices)


# Values of the task's that answer another way the second time -------------------------


_EXACT = frozenset({bool, float, int, str, type(None)})


def _guard_joins() -> None:
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
    for name in ("to_object_array", "to_object_array_tuples"):
        setattr(_lib, name, _own_list(getattr(_lib, name)))


def _copying(getter: Any) -> Any:
    return lambda self: getter(self).copy()


def _own_list(real: Any) -> Any:
    # C walks the list while the task's objects are asked for their lengths
    def function(rows: Any, *args: Any, **options: Any) -> Any:
        return real(list(rows), *args, **options)

    return function


# Compiled functions of several types: objects go to theirs without a ``memoryview`` ------
#
# To find the type of an argument Cython takes a ``memoryview`` of it, which arrays of
# objects refuse: whoever holds one writes addresses.


def _guard_fused() -> None:
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


def _guard_receivers() -> None:
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


# Accessors that the classes themselves show


def _guard_accessors() -> None:
    accessor: Any = importlib.import_module("pandas.core.accessor").Accessor
    real = accessor.__get__

    def get(self: Any, obj: Any, cls: Any = None) -> Any:
        return hide_class(self._accessor) if obj is None else real(self, obj, cls)

    accessor.__get__ = get


# Time zones: read once, the same on every host


_ZONES: list[object] = []


def _read_zones() -> None:
    """Read every time zone of the package tzdata; none is read from the host or later."""
    common: Any = importlib.import_module("zoneinfo._common")
    zoneinfo.reset_tzpath(to=())
    names = sorted(zoneinfo.available_timezones())
    twins: Any = importlib.import_module(
        "zoneinfo._zoneinfo"
    )  # pandas reads its tables
    for kind in (zoneinfo.ZoneInfo, twins.ZoneInfo):
        _ZONES.extend(map(kind, names))

    def no_more(key: str) -> NoReturn:
        raise zoneinfo.ZoneInfoNotFoundError(f"no time zone {key[:64]!r} in a task")

    common.load_tzdata = no_more
    for name in ("clear_cache", "from_file", "no_cache"):
        replace_member(zoneinfo.ZoneInfo, name, Closed("ZoneInfo", name))
    timezones: Any = importlib.import_module("pandas._libs.tslibs.timezones")
    timezones.dateutil_gettz = no_more  # reads files by their paths


@functools.cache
def _close(listed: frozenset[str]) -> None:
    """Do all that is done to classes and modules of pandas (in the zygote, once)."""
    admit_typed_readers()
    _read_zones()
    _guard_categories()
    _guard_levels()
    _guard_sparse()
    _guard_joins()
    _guard_fused()
    _guard_accessors()
    guard_masks()
    guard_names(listed)
    guard_texts()
    _guard_receivers()


def _build_pandas(level: Level) -> dict[str, object]:
    names = (
        names for dotted, names in level.members.items() if dotted.startswith("pandas.")
    )
    _close(frozenset[str]().union(*names))
    made = by_name(MultiIndex, get_option, option_context, reset_option, set_option)
    return made | {"offsets": _offsets(level)}


def _offsets(level: Level) -> SimpleNamespace:
    """Return ``pandas.offsets``, a name for the module ``pandas.tseries.offsets``."""
    dotted = "pandas.tseries.offsets"
    real = vars(importlib.import_module(dotted))
    return SimpleNamespace(**{name: real[name] for name in level.modules[dotted].names})


FACADES: dict[str, object] = {"pandas": _build_pandas}
