"""`functools`: no copying of attributes by name, no rewriting of library classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.guards import GuardError, is_own_class, is_own_function

__all__ = ["build"]


def update_wrapper(wrapper: Any, wrapped: Any) -> Any:  # noqa: ANN401
    """Give `wrapper`, a function of the task, the name and text of `wrapped`."""
    if is_own_function(wrapper):
        for name in ("__name__", "__qualname__", "__doc__"):
            if hasattr(wrapped, name):
                setattr(wrapper, name, getattr(wrapped, name))
    return wrapper


def wraps(wrapped: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """Return a decorator that calls `update_wrapper`."""
    return lambda wrapper: update_wrapper(wrapper, wrapped)


def total_ordering(cls: Any) -> Any:  # noqa: ANN401
    """``functools.total_ordering`` for the task's own classes."""
    if not isinstance(cls, type) or not is_own_class(cls):
        raise GuardError(
            "STO-G102", "total_ordering() needs a class of the task itself"
        )
    return functools.total_ordering(cls)


class cached_property:  # noqa: N801 - the library's name
    """``functools.cached_property`` whose attribute name only the class body chooses."""

    __slots__ = ("_func", "_name")  # in the class, so no subclass reaches them

    def __init__(self, func: Callable[[Any], object]) -> None:
        self._func = func
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> object:  # noqa: ANN401
        if instance is None:
            return self
        cache = instance.__dict__
        if self._name not in cache:
            cache[self._name] = self._func(instance)
        return cache[self._name]


cached_property.__module__ = "functools"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {
        "cached_property": cached_property,
        "total_ordering": total_ordering,
        "update_wrapper": update_wrapper,
        "wraps": wraps,
    }
