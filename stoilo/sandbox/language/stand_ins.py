"""Classes that stand for a class: same instances, other constructor."""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from stoilo.sandbox.language.rules import GuardError


class StandIn(type):
    """Metaclass: ``isinstance`` and ``issubclass`` speak of ``__stoilo_real__``.

    A class that a task derives from a stand-in is an ordinary class again.
    """

    __stoilo_real__: type

    def __instancecheck__(cls, instance: object) -> bool:
        if "__stoilo_real__" not in cls.__dict__:
            return super().__instancecheck__(instance)
        return isinstance(instance, cls.__stoilo_real__)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        if "__stoilo_real__" not in cls.__dict__:
            return super().__subclasscheck__(subclass)
        real = getattr(subclass, "__stoilo_real__", subclass)
        return issubclass(real, cls.__stoilo_real__)

    def __repr__(cls) -> str:
        own = "__stoilo_real__" not in cls.__dict__
        return super().__repr__() if own else repr(cls.__stoilo_real__)

    def __eq__(cls, other: object) -> bool:
        return cls is other or other is cls.__dict__.get("__stoilo_real__")

    def __hash__(cls) -> int:
        return hash(cls.__dict__.get("__stoilo_real__", id(cls)))


def hide_class(real: type) -> type:
    """Return a class that stands for `real`, whose instances exist but are not made."""

    def refuse(cls: type, *_values: object, **_more: object) -> object:
        raise GuardError("STO-G107", f"a task makes no {cls.__name__:.64}")

    members = {
        "__stoilo_real__": real,
        "__new__": refuse,
        "__class_getitem__": classmethod(GenericAlias),
        "__module__": real.__module__,
        "__qualname__": real.__qualname__,
    }
    return StandIn(real.__name__, (), members)


# What a task knows as ``type``: it tells what an object is, and builds no classes -----


class _GuardedTypeMeta(type):
    """Lets ``isinstance(x, type)`` and ``issubclass`` mean what they mean."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type)

    def __repr__(cls) -> str:
        return "<class 'type'>"


def make_type_class(type_of: Callable[[object], type]) -> type:
    """Return what a task knows as ``type``; `type_of` answers for it."""

    class GuardedType(metaclass=_GuardedTypeMeta):
        """``type`` with one argument."""

        def __new__(cls, *values: object) -> Any:
            if len(values) != 1:
                raise GuardError("STO-G104", "type() builds no classes in a task")
            return type_of(values[0])

        def __class_getitem__(cls, item: object) -> object:
            return GenericAlias(cls, item)  # a real one's call would build classes

    GuardedType.__name__ = GuardedType.__qualname__ = "type"
    return GuardedType
