"""`pandas`: in memory only, no text that is evaluated, no array that its C code trusts.

Most of it is done to the classes themselves, once, in the zygote: tasks meet instances.
Codes of categories and levels index memory without a look at bounds, so no task gets hold of
the arrays in which they stand, and whoever brings some has them copied and checked.
"""

from __future__ import annotations

import functools
import importlib
import zoneinfo
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_memory import admit_typed_readers
from stoilo.sandbox.language.hardening import (
    replace_member,
)
from stoilo.sandbox.language.ownership import class_dict
from stoilo.sandbox.language.rules import Closed
from stoilo.sandbox.language.substitutes import StandIn, by_name, hide_class
from stoilo.sandbox.libraries.pandas_compiled import (
    guard_fused,
    guard_joins,
    guard_receivers,
)
from stoilo.sandbox.libraries.pandas_names import (
    get_option,
    guard_kinds,
    guard_masks,
    guard_names,
    guard_texts,
    option_context,
    reset_option,
    set_option,
)

# Codes: arrays that nobody can make writable ------------------------------------------


def _sealed(codes: Any) -> Any:
    """Return `codes` over a read-only buffer, which numpy lets nobody write to again."""
    if not codes.size or not codes.flags.c_contiguous:
        return codes.copy()
    return np.frombuffer(memoryview(codes).toreadonly(), codes.dtype)


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
    index.__len__ = lambda self: len(self._codes[0])  # often asked: seals nothing
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


def _copying(getter: Any) -> Any:
    return lambda self: getter(self).copy()


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
    guard_fused()
    guard_joins()
    _guard_accessors()
    guard_kinds()
    guard_masks()
    guard_names(listed)
    guard_texts()
    guard_receivers()


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
