"""`dataclasses`: the decorator rewrites the task's own classes only."""

from __future__ import annotations

import dataclasses
from keyword import iskeyword
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.guards import GuardError, class_dict, is_own_class
from stoilo.sandbox.rules import is_variable_name

__all__ = ["build"]


def _check_fields(target: type) -> None:
    """Refuse field names that no class body could hold: the library compiles them."""
    for name in class_dict(target).get("__annotations__", {}):
        spelled = type(name) is str and name.isidentifier() and not iskeyword(name)
        if not (spelled and is_variable_name(name)):
            raise GuardError(
                "STO-G106", f"a dataclass cannot have the field {name!r:.64}"
            )


def dataclass(cls: Any = None, /, **options: Any) -> Any:  # noqa: ANN401
    """``dataclasses.dataclass``."""

    def decorate(target: Any) -> Any:  # noqa: ANN401
        if not isinstance(target, type) or not is_own_class(target):
            raise GuardError("STO-G102", "dataclass() needs a class of the task itself")
        _check_fields(target)
        return dataclasses.dataclass(target, **options)

    return decorate if cls is None else decorate(cls)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"dataclass": dataclass}
