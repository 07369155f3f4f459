"""`mpmath`: numbers of any precision; nothing draws, evaluates text or runs mpmath's tests."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.rules import Closed, GuardError
from stoilo.sandbox.libraries.packages import bind_classes, shut_builtins

# Every number leads to its context, and the context to whatever mpmath has
_CLOSED = ("clone", "cplot", "default_color_function", "init_builtins", "plot", "splot")

# sympy calls functions of mpmath by the name that a task gave to one of its own
TOOLS = ("cplot", "doctests", "monitor", "plot", "runtests", "splot", "timing")


def public_names() -> dict[str, Any]:
    """Return what ``from mpmath import *`` gives a task."""
    names = vars(importlib.import_module("mpmath")).items()
    return {
        name: value
        for name, value in names
        if not (name.startswith("_") or isinstance(value, ModuleType) or name in TOOLS)
    }


_FORMS = frozenset("ZQRC")


def _checked(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `make`, which compiles a loop for a form of hypergeometric sum, checked.

    The form becomes part of the text that it compiles, and ``mp.hypsum`` takes any.
    """

    def make_checked(form: Any) -> Any:
        _above, _below, parameters, argument = form
        texts = [*parameters, argument]
        exact = all(type(one) is str for one in texts)  # another's ``==`` may lie
        if not exact or not _FORMS.issuperset(texts):
            raise GuardError("STO-G108", "hypsum() takes parameters of Z, Q, R and C")
        return make(form)

    return make_checked


@functools.cache
def seal() -> None:
    """Close what is no mathematics; in the zygote."""
    mpmath: Any = importlib.import_module("mpmath")
    sums: Any = importlib.import_module("mpmath.libmp")
    sums.make_hyp_summator = _checked(sums.make_hyp_summator)
    shut_builtins("mpmath")
    bind_classes("mpmath")
    for context in (mpmath.MPContext, mpmath.FPContext, mpmath.MPIntervalContext):
        for name in filter(functools.partial(hasattr, context), _CLOSED):
            setattr(context, name, Closed(context.__name__, name))
    for name in TOOLS:
        delattr(mpmath, name)


def _build(_level: Level) -> dict[str, object]:
    seal()
    return {}


FACADES: dict[str, object] = {"mpmath": _build}
