"""Attributes of what arguments name, set without running any of its code."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

from stoilo.core.errors import TrustError
from stoilo.sandbox.ownership import class_dict, class_mro, is_own_class
from stoilo.sandbox.rules import GUARDED_DUNDERS, NameKind, attribute_kind

__all__ = ["set_state", "state_refusal"]


def state_refusal(message: str) -> TrustError:
    """Return the refusal ``STO-G111``: the state does not fit the class."""
    return TrustError("STO-G111", message)


def set_state(instance: Any, name: str, value: object) -> None:  # noqa: ANN401
    """Set the attribute `name` (from the wire); no setter or ``__setattr__`` runs.

    Raises:
        TrustError: ``STO-G111``, the name is reserved or the class has no room for it.
    """
    if attribute_kind(name) is NameKind.REFUSED or name in GUARDED_DUNDERS:
        raise state_refusal(f"the attribute name {name[:64]!r} is reserved")
    for cls in class_mro(type(instance)):
        member = class_dict(cls).get(name)
        if isinstance(member, MemberDescriptorType):
            if not is_own_class(cls):
                raise state_refusal(f"{name[:64]!r} belongs to a library class")
            member.__set__(instance, value)
            return
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        raise state_refusal(f"there is no attribute {name[:64]!r}") from None
    attributes[name] = value
