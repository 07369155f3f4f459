"""`abc`, `enum` and `types`: how classes and plain records are made, and no other way."""

from __future__ import annotations

import enum
import types
from abc import ABCMeta
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import (
    PLAIN_TYPES,
    class_dict,
    class_mro,
    is_own_class,
    is_own_function,
)
from stoilo.sandbox.language.rules import (
    TASK_MODULE,
    GuardError,
    NameKind,
    attribute_kind,
    is_plain,
)
from stoilo.sandbox.language.stand_ins import StandIn, hide_class

# `abc`: the metaclass by name only, and marks on the task's own functions only --------


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


def _build_abc(_level: Level) -> dict[str, object]:
    functions = (
        *(abstractclassmethod, abstractmethod),
        *(abstractproperty, abstractstaticmethod),
    )
    marks = {function.__name__: function for function in functions}
    return {"ABCMeta": hide_class(ABCMeta), **marks}


# `enum`: the functional form may not smuggle in names that a class body could not -----


_real_call = enum.EnumMeta.__call__
_make_member = enum._proto_member.__set_name__  # type: ignore[attr-defined]  # noqa: SLF001 - names it


def _member_names(names: Any) -> list[Any]:
    """Return the members asked for as a list that cannot change afterwards."""
    if isinstance(names, str):
        return str.__str__(names).replace(",", " ").split()
    if isinstance(names, dict):
        names = names.items()
    return [item if isinstance(item, str) else tuple(item) for item in names]


def _extends_more(cls: type) -> bool:
    """Whether an enum extends a library class, whose names its members could take."""
    libraries = {base for base in class_mro(cls) if not is_own_class(base)}
    return any(base.__module__ != enum.__name__ for base in libraries - PLAIN_TYPES)


def _checked_call(cls: Any, value: Any, names: Any = None, **options: Any) -> Any:
    """``EnumMeta.__call__`` whose member names pass the attribute rule."""
    if names is None:
        return _real_call(cls, value, **options)
    members = _member_names(names)
    for member in members:
        name = member if isinstance(member, str) else member[0]
        if not is_plain(name):
            raise GuardError("STO-G106", f"an enum cannot have the member {name!r:.64}")
    if options.pop("type", None) is not None or _extends_more(cls):
        raise GuardError("STO-G106", "write an enum with a mixed-in type as a class")
    return _real_call(cls, value, members, **options | {"module": TASK_MODULE})


def _checked_member(self: Any, cls: Any, name: str) -> None:
    """``_proto_member.__set_name__`` of a name that no mixin has, unless it is plain.

    Since CPython 3.12 a member called as a mixin's method reads that name off its value.
    """
    mixed = any(name in class_dict(base) for base in class_mro(cls)[1:])
    if mixed and attribute_kind(name) is not NameKind.PLAIN:
        raise GuardError("STO-G106", f"an enum cannot have the member {name!r:.64}")
    _make_member(self, cls, name)


def _build_enum(_level: Level) -> dict[str, object]:
    """Put the checks into the metaclass: task enums inherit it, however they are made."""
    enum.EnumMeta.__call__ = _checked_call  # type: ignore[method-assign]  # see above
    enum._proto_member.__set_name__ = _checked_member  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {}


# `types`: plain records with the attribute rule on their names; no makers of functions
#
# A function made of a code object and a dictionary would run without any guard, so the
# types of functions and generators only tell what an object is. ``MethodType`` stays: what
# it makes calls a function with one more argument, as `functools.partial` does.


class SimpleNamespace(metaclass=StandIn):
    """Stands for ``types.SimpleNamespace``."""

    __stoilo_real__ = types.SimpleNamespace

    def __new__(cls, **attributes: Any) -> Any:
        """Return a real namespace; names that a task cannot assign are refused."""
        for name in attributes:
            if not is_plain(name):
                raise GuardError("STO-G102", "an attribute name is reserved")
        return types.SimpleNamespace(**attributes)


SimpleNamespace.__module__ = "types"


def _build_types(_level: Level) -> dict[str, object]:
    function = hide_class(types.FunctionType)
    return {
        "BuiltinFunctionType": hide_class(types.BuiltinFunctionType),
        "FunctionType": function,
        "GeneratorType": hide_class(types.GeneratorType),
        "LambdaType": function,
        "SimpleNamespace": SimpleNamespace,
    }


FACADES = {
    "abc": _build_abc,
    "enum": _build_enum,
    "types": _build_types,
}
