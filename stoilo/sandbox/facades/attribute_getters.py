"""`operator`: getters by name, under the rule that names in source obey."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.hooks import call_masked
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.rules import NameKind, attribute_kind

__all__ = ["build"]


def _check_name(name: object, parts: list[str]) -> None:
    if all(attribute_kind(part) is NameKind.PLAIN for part in parts):
        return
    raise GuardError(
        "STO-G101",
        f"the attribute {str.__str__(str(name))[:64]!r} is out of reach by name",
        hint="a task sees the public interface of library objects only",
    )


def attrgetter(attr: Any, /, *attrs: Any) -> Any:
    """``operator.attrgetter`` of names that compile to direct access."""
    for name in (attr, *attrs):
        if type(name) is not str:
            raise TypeError("attribute name must be a string")
        _check_name(name, name.split("."))
    return operator.attrgetter(attr, *attrs)


def methodcaller(name: Any, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """``operator.methodcaller`` of a name that compiles to direct access."""
    if type(name) is not str:
        raise TypeError("method name must be a string")
    _check_name(name, [name])

    def call(obj: Any, /) -> Any:
        return call_masked(getattr(obj, name), *args, **kwargs)

    return call


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"attrgetter": attrgetter, "methodcaller": methodcaller}
