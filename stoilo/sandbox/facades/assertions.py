"""`numpy.testing`: its assertions, without the test tools that it imports.

The library's module loads unittest, subprocess, logging and e-mail parsers, which would
make every cold start half as long again. These forms raise `AssertionError` in the same
cases; their messages are shorter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stoilo.sandbox.language.substitutes import by_name


def _fail(what: str, actual: Any, desired: Any, err_msg: str) -> None:
    message = f"{what}: {np.asarray(actual)!r} and {np.asarray(desired)!r}"
    raise AssertionError(f"{err_msg}\n{message}" if err_msg else message)


def _compare(
    holds: Callable[..., Any],
    what: str,
    actual: Any,
    desired: Any,
    err_msg: str,
    strict: bool = False,
) -> None:
    left, right = np.asanyarray(actual), np.asanyarray(desired)
    if strict and (left.shape, left.dtype) != (right.shape, right.dtype):
        _fail("shapes or types differ", left, right, err_msg)
    if left.shape != right.shape and left.ndim and right.ndim:
        _fail("shapes differ", left, right, err_msg)
    if not np.all(holds(left, right)):
        _fail(what, left, right, err_msg)


def _or_nan(holds: Callable[..., Any]) -> Callable[..., Any]:
    # What does not equal itself is NaN or NaT, of any dtype: it equals the like of it.
    return lambda left, right: (
        holds(left, right) | (np.not_equal(left, left) & np.not_equal(right, right))
    )


def assert_(val: Any, msg: str = "") -> None:
    if not val:
        raise AssertionError(msg() if callable(msg) else msg)


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-07,
    atol: float = 0,
    equal_nan: bool = True,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    del verbose
    close = functools.partial(np.isclose, rtol=rtol, atol=atol, equal_nan=equal_nan)
    what = f"not equal within rtol={rtol}, atol={atol}"
    _compare(close, what, actual, desired, err_msg, strict)


def assert_array_equal(
    actual: Any,
    desired: Any,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    del verbose
    _compare(_or_nan(np.equal), "not equal", actual, desired, err_msg, strict)


def assert_array_less(
    x: Any, y: Any, err_msg: str = "", verbose: bool = True, *, strict: bool = False
) -> None:
    del verbose
    _compare(_or_nan(np.less), "not less", x, y, err_msg, strict)


def assert_array_almost_equal(
    actual: Any,
    desired: Any,
    decimal: int = 6,
    err_msg: str = "",
    verbose: bool = True,
) -> None:
    del verbose
    tolerance = 1.5 * 10.0**-decimal
    assert_allclose(actual, desired, rtol=0, atol=tolerance, err_msg=err_msg)


def assert_almost_equal(
    actual: Any, desired: Any, decimal: int = 7, err_msg: str = "", verbose: bool = True
) -> None:
    assert_array_almost_equal(actual, desired, decimal, err_msg, verbose)


def assert_approx_equal(
    actual: Any,
    desired: Any,
    significant: int = 7,
    err_msg: str = "",
    verbose: bool = True,
) -> None:
    middle = 0.5 * (abs(actual) + abs(desired))
    if not np.isfinite(middle) or middle == 0:
        assert_array_equal(actual, desired, err_msg, verbose)
        return
    scale = 10.0 ** np.floor(np.log10(middle))
    if abs(actual - desired) / scale >= 10.0 ** -(significant - 1):
        _fail(f"not equal to {significant} digits", actual, desired, err_msg)


def assert_equal(
    actual: Any,
    desired: Any,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None:
    # Lists, tuples and dicts item by item
    if isinstance(desired, dict):
        if not isinstance(actual, dict) or actual.keys() != desired.keys():
            _fail("keys differ", list(actual), list(desired), err_msg)
        for key in desired:
            assert_equal(actual[key], desired[key], f"key {key!r} {err_msg}", verbose)
    elif isinstance(desired, list | tuple) and isinstance(actual, list | tuple):
        if len(actual) != len(desired):
            _fail("lengths differ", len(actual), len(desired), err_msg)
        for place, (left, right) in enumerate(zip(actual, desired, strict=True)):
            assert_equal(left, right, f"item {place} {err_msg}", verbose)
    else:
        arrays = isinstance(actual, np.ndarray) or isinstance(desired, np.ndarray)
        if not arrays and np.isscalar(actual) != np.isscalar(desired):
            _fail("not equal", actual, desired, err_msg)
        assert_array_equal(actual, desired, err_msg, verbose, strict=strict)


FACADES = {
    "numpy.testing": by_name(
        *(assert_, assert_allclose, assert_almost_equal, assert_approx_equal),
        *(assert_array_almost_equal, assert_array_equal, assert_array_less),
        assert_equal,
    )
}
