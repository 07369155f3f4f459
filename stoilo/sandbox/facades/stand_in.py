"""A class that stands for a library class: same instances, other constructor."""

from __future__ import annotations

from typing import Any

__all__ = ["StandIn"]


class StandIn(type):
    """Metaclass: ``isinstance`` and ``issubclass`` speak of ``__stoilo_real__``."""

    __stoilo_real__: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__stoilo_real__)

    def __subclasscheck__(cls, subclass: Any) -> bool:  # noqa: ANN401
        real = getattr(subclass, "__stoilo_real__", subclass)
        return issubclass(real, cls.__stoilo_real__)

    def __repr__(cls) -> str:
        return repr(cls.__stoilo_real__)

    def __eq__(cls, other: object) -> bool:
        return cls is other or other is cls.__stoilo_real__

    def __hash__(cls) -> int:
        return hash(cls.__stoilo_real__)
