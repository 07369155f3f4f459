"""`enum`: the functional form may not smuggle in names that a class body could not."""

from __future__ import annotations

import enum
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import (
    PLAIN_TYPES,
    class_dict,
    class_mro,
    is_own_class,
)
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.rules import TASK_MODULE, NameKind, attribute_kind

__all__ = ["build"]

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
        if type(name) is not str or attribute_kind(name) is not NameKind.PLAIN:
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


def build(level: Level) -> dict[str, object]:
    """Put the checks into the metaclass: task enums inherit it, however they are made."""
    del level
    enum.EnumMeta.__call__ = _checked_call  # type: ignore[method-assign]  # see above
    enum._proto_member.__set_name__ = _checked_member  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {}
