"""pandas: names of methods given as text, and text results that never reach a file.

``agg("mean")``, ``apply("…")``, ``pivot_table(aggfunc="…")`` end in ``getattr`` with a text
of the task's. The modules of pandas that do so get a ``getattr`` and ``hasattr`` of their
own, which know the names that the library's file lists under ``[members]`` and no other.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from stoilo.sandbox.language.ownership import is_own_class
from stoilo.sandbox.language.rules import GuardError, is_plain, refuse_read
from stoilo.sandbox.language.substitutes import check_template

_ROADS: dict[str, frozenset[str]] = {
    "pandas.core.apply": frozenset({"as_index", "axis"}),
    "pandas.core.groupby.generic": frozenset(),
    "pandas.core.groupby.groupby": frozenset(),
    "pandas.core.reshape.pivot": frozenset({"__name__"}),
    "pandas.core.resample": frozenset(
        {"_period_dtype_code", "dtype", "name"}
        | {"closed", "convention", "freq", "group_keys", "label", "offset", "origin"}
    ),
}
"""Modules with ``getattr(x, text)`` → the names that they spell themselves."""


def guard_names(listed: frozenset[str]) -> None:
    """Put the check before every text that names a method: it is one of `listed`."""
    for dotted, spelled in _ROADS.items():
        module = vars(importlib.import_module(dotted))
        read, has = _checked_readers(listed | spelled)
        module.update({"getattr": read, "hasattr": has})
    rolling = vars(importlib.import_module("pandas.core.window.rolling"))
    rolling["getattr"] = _read_plainly


def _checked_readers(listed: frozenset[str]) -> tuple[Any, Any]:
    """Return ``getattr`` and ``hasattr`` for the names `listed`; of numpy, for ufuncs."""

    def has(value: Any, name: Any) -> bool:
        name = str.__str__(name)  # a class of the task's may equal other names later
        if value is np:
            return isinstance(builtins.getattr(np, name, None), np.ufunc)
        if name not in listed and not is_plain(name):
            raise refuse_read(value, name)
        return name in listed and builtins.hasattr(value, name)

    def read(value: Any, name: Any, *default: Any) -> Any:
        name = str.__str__(name)
        if value is np:
            if not has(value, name):
                raise refuse_read(value, name)
        elif name not in listed:
            if default and is_plain(name):
                return default[0]
            raise refuse_read(value, name)
        return builtins.getattr(value, name, *default)

    return read, has


def _read_plainly(value: Any, name: Any, *default: Any) -> Any:
    # ``rolling(win_type=text)`` reads windows off scipy's module by their names
    if isinstance(value, ModuleType) and not is_plain(name):
        raise refuse_read(value, str.__str__(name))
    return builtins.getattr(value, name, *default)


# Own objects that say they are frames -------------------------------------------------


_KINDS: frozenset[type] = frozenset({pd.DataFrame, pd.Series, pd.Index, pd.RangeIndex})
"""Pandas' own, of which it asks most."""


def guard_kinds() -> None:
    """Let no object of the task's pass for pandas' own by an attribute ``_typ``.

    Pandas asks its own for places and goes there without a look.
    """
    generic = vars(importlib.import_module("pandas.core.dtypes.generic"))
    generic["getattr"] = _read_kind


def _read_kind(value: Any, name: str, default: str) -> Any:
    found = builtins.getattr(value, name, default)
    if found is default or type(value) in _KINDS:
        return found
    own = is_own_class(value if isinstance(value, type) else type(value))
    return default if own else found


# A mask for later: ``where=`` that no call in the source names ------------------------


def _refuse_mask() -> NoReturn:
    raise GuardError("STO-G101", "only a call in the source takes where=")


def guard_masks() -> None:
    """Refuse ``where`` as a name that reaches a function by another road than a call."""
    common: Any = importlib.import_module("pandas.core.common")
    real_pipe = common.pipe

    def pipe(obj: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(func, tuple):
            function, target = func
            if str.__str__(target) == "where":
                _refuse_mask()
            func = (function, str.__str__(target))
        return real_pipe(obj, func, *args, **kwargs)

    common.pipe = pipe
    agg: Any = pd.NamedAgg
    real_new = agg.__new__ if "__new__" in vars(agg) else None
    name = "__new__" if real_new else "__init__"
    real = vars(agg)[name]
    real = getattr(real, "__func__", real)

    @functools.wraps(real)
    def made(first: Any, *args: Any, **kwargs: Any) -> Any:
        if "where" in kwargs:
            _refuse_mask()
        return real(first, *args, **kwargs)

    setattr(agg, name, made)


# Text results ---------------------------------------------------------------------


_TEXTS = (
    ("NDFrame", "to_csv", "path_or_buf"),
    ("NDFrame", "to_json", "path_or_buf"),
    ("DataFrame", "to_html", "buf"),
    ("DataFrame", "to_string", "buf"),
    ("Series", "to_string", "buf"),
)


def guard_texts() -> None:
    """Let the methods that write text return it, or give it to an object's ``write``."""
    owners = {
        "NDFrame": importlib.import_module("pandas.core.generic").NDFrame,
        "DataFrame": pd.DataFrame,
        "Series": pd.Series,
    }
    for owner, name, parameter in _TEXTS:
        real = vars(owners[owner])[name]
        setattr(owners[owner], name, _text_only(real, parameter))
    formatter: Any = importlib.import_module("pandas.io.formats.format")
    cls = formatter.DataFrameFormatter
    cls._validate_float_format = _checked_format(cls._validate_float_format)


def _checked_format(real: Any) -> Any:
    # ``float_format="{:.2f}"`` is filled, with what its fields read off a number
    def validate(self: Any, fmt: Any) -> Any:
        if isinstance(fmt, str):
            fmt = str.__str__(fmt)
            if "%" not in fmt:
                check_template(fmt)
        return real(self, fmt)

    return validate


def _text_only(real: Any, parameter: str) -> Any:
    @functools.wraps(real)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        target = args[0] if args else options.pop(parameter, None)
        text = real(self, None, *args[1:], **options)
        if target is None:
            return text
        if isinstance(target, str | bytes) or not hasattr(target, "write"):
            message = f"{real.__name__}() writes no files in a task"
            raise GuardError("STO-G108", message, hint="return the text that it gives")
        target.write(text)
        return None

    return method


# Options: how things are shown, nothing else ------------------------------------------


_config: Any = importlib.import_module("pandas._config.config")


def _check_option(key: Any) -> str:
    if type(key) is not str or not key.startswith("display."):
        raise GuardError(
            "STO-G108",
            f"a task sets display options only, not {str(key)[:40]!r}",
            hint="write the option out: display.max_rows",
        )
    if key not in _config._registered_options:  # noqa: SLF001 - texts are patterns there
        raise KeyError(f"no such option: {key[:40]}")
    return key


def get_option(pat: Any) -> Any:
    return pd.get_option(_check_option(pat))


def set_option(*args: Any) -> None:
    pd.set_option(*_checked_pairs(args))


def reset_option(pat: Any) -> None:
    pd.reset_option(_check_option(pat))


def option_context(*args: Any) -> Any:
    return pd.option_context(*_checked_pairs(args))


def _checked_pairs(args: tuple[Any, ...]) -> tuple[Any, ...]:
    pairs = (
        tuple(args[0].items())
        if len(args) == 1
        else tuple(zip(*[iter(args)] * 2, strict=True))
    )
    return tuple(part for key, value in pairs for part in (_check_option(key), value))
