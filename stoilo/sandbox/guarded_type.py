"""What a task knows as ``type``: it tells what an object is, and builds no classes."""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from stoilo.sandbox.refusals import GuardError

__all__ = ["make_type_class"]


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

        def __new__(cls, *values: object) -> Any:  # noqa: ANN401
            if len(values) != 1:
                raise GuardError("STO-G104", "type() builds no classes in a task")
            return type_of(values[0])

        def __class_getitem__(cls, item: object) -> object:
            return GenericAlias(cls, item)  # a real one's call would build classes

    GuardedType.__name__ = GuardedType.__qualname__ = "type"
    return GuardedType
