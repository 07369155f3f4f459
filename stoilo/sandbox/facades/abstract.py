"""`abc`: the metaclass by name only, and marks on the task's own functions only."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import is_own_class, is_own_function
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.stand_ins import hide_class

__all__ = ["build"]

_DESCRIPTORS = frozenset({classmethod, property, staticmethod})


def abstractmethod(function: Any) -> Any:
    """``abc.abstractmethod`` of a function or descriptor of the task."""
    if is_own_function(function) or is_own_class(type(function)):
        function.__isabstractmethod__ = True
    elif type(function) not in _DESCRIPTORS:  # those ask what they hold
        raise GuardError("STO-G102", "abstractmethod() needs a function of the task")
    return function


def abstractclassmethod(function: Any) -> Any:
    """``abc.abstractclassmethod``."""
    return classmethod(abstractmethod(function))


def abstractstaticmethod(function: Any) -> Any:
    """``abc.abstractstaticmethod``."""
    return staticmethod(abstractmethod(function))


def abstractproperty(function: Any, *accessors: Any) -> Any:
    """``abc.abstractproperty``."""
    return property(abstractmethod(function), *accessors)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    functions = (
        *(abstractclassmethod, abstractmethod),
        *(abstractproperty, abstractstaticmethod),
    )
    marks = {function.__name__: function for function in functions}
    return {"ABCMeta": hide_class(ABCMeta), **marks}
