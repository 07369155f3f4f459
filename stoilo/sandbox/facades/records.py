"""`dataclasses`: the decorator rewrites the task's own classes only."""

from __future__ import annotations

import dataclasses
from keyword import iskeyword
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.fieldnames import may_be_field, narrow_match_args
from stoilo.sandbox.guards import check_fields
from stoilo.sandbox.ownership import class_dict, is_own_class
from stoilo.sandbox.refusals import GuardError
from stoilo.sandbox.rules import is_variable_name

__all__ = ["build"]


def _check_fields(target: type) -> None:
    """Refuse a class whose fields would let the library read or write what is not its own.

    The library compiles their names; classes that inherit from `target` were looked at
    when it had no fields yet.
    """
    if type.__subclasses__(target):
        raise GuardError("STO-G106", "dataclass() comes before subclasses of the class")
    annotations = class_dict(target).get("__annotations__", {})
    if type(annotations) is not dict:  # the library reads it twice
        raise GuardError("STO-G106", "annotations of a dataclass must be a plain dict")
    for name in annotations:
        spelled = type(name) is str and name.isidentifier() and not iskeyword(name)
        if not (spelled and is_variable_name(name) and may_be_field(target, name)):
            raise GuardError(
                "STO-G106", f"a dataclass cannot have the field {name!r:.64}"
            )


def dataclass(cls: Any = None, /, **options: Any) -> Any:  # noqa: ANN401
    """``dataclasses.dataclass``."""

    def decorate(target: Any) -> Any:  # noqa: ANN401
        if not isinstance(target, type) or not is_own_class(target):
            raise GuardError("STO-G102", "dataclass() needs a class of the task itself")
        _check_fields(target)
        try:
            made: type = dataclasses.dataclass(target, **options)
            check_fields(made)
        finally:  # with slots there are two classes, and the library may give up half-way
            narrow_match_args(target)
        return made

    return decorate if cls is None else decorate(cls)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"dataclass": dataclass}
