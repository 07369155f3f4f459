"""`functools`: no copying of attributes by name, no rewriting of library classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import UnionType
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import is_own_class, is_own_function
from stoilo.sandbox.language.refusals import GuardError

__all__ = ["build"]


def update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    """Give `wrapper`, a function of the task, the name and text of `wrapped`."""
    if is_own_function(wrapper):
        for name in ("__name__", "__qualname__", "__doc__"):
            if hasattr(wrapped, name):
                setattr(wrapper, name, getattr(wrapped, name))
    return wrapper


def wraps(wrapped: Any) -> Callable[[Any], Any]:
    """Return a decorator that calls `update_wrapper`."""
    return lambda wrapper: update_wrapper(wrapper, wrapped)


def total_ordering(cls: Any) -> Any:
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

    def __get__(self, instance: Any, owner: type | None = None) -> object:
        if instance is None:
            return self
        cache = instance.__dict__
        if self._name not in cache:
            cache[self._name] = self._func(instance)
        return cache[self._name]


def singledispatch(func: Any) -> Any:
    """``functools.singledispatch`` whose ``register`` takes a class, no annotation.

    The library would evaluate annotations, and a task has some that are text. It would
    also take over what the task stored on `func`, a ``dispatch`` of its own for one.
    """
    dispatcher = functools.singledispatch(lambda *_values, **_named: None)
    register_class = dispatcher.register
    register_class(object, func)
    functools.update_wrapper(dispatcher, func, updated=())

    def register(cls: Any, func: Any = None) -> Any:
        """Register `func` for `cls`, or return a decorator that does."""
        if not isinstance(cls, type | UnionType):
            raise TypeError("register() needs a class: write @fun.register(int)")
        return register_class(cls, func)

    dispatcher.register = register  # type: ignore[method-assign]  # see above
    return dispatcher


class singledispatchmethod:  # noqa: N801 - the library's name
    """``functools.singledispatchmethod`` on top of `singledispatch`."""

    __slots__ = ("_dispatcher", "_function")

    def __init__(self, func: Any) -> None:
        if not callable(func) and not hasattr(func, "__get__"):
            raise TypeError(f"{func!r:.64} is not callable or a descriptor")
        self._dispatcher = singledispatch(func)
        self._function = func

    def register(self, cls: Any, method: Any = None) -> Any:
        """Register `method` for `cls`, or return a decorator that does."""
        return self._dispatcher.register(cls, method)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            found = self._dispatcher.dispatch(args[0].__class__)
            return found.__get__(instance, owner)(*args, **kwargs)

        return update_wrapper(method, self._function)


for _kind in (cached_property, singledispatchmethod):
    _kind.__module__ = "functools"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {
        "cached_property": cached_property,
        "singledispatch": singledispatch,
        "singledispatchmethod": singledispatchmethod,
        "total_ordering": total_ordering,
        "update_wrapper": update_wrapper,
        "wraps": wraps,
    }
