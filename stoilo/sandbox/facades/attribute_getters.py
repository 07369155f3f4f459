"""`operator`: getters by name, under the rule that names in source obey."""

from __future__ import annotations

import operator
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.masked import call_masked
from stoilo.sandbox.refusals import GuardError
from stoilo.sandbox.rules import NameKind, attribute_kind

__all__ = ["build"]


def _check_name(name: object, parts: list[str]) -> None:
    if all(attribute_kind(part) is NameKind.PLAIN for part in parts):
        return
    raise GuardError(
        "STO-G101",
        f"the attribute {str.__str__(str(name))[:64]!r} is out of reach by name",
        hint="a task sees the public interface of library objects only",
    )


def attrgetter(attr: Any, /, *attrs: Any) -> Any:  # noqa: ANN401
    """``operator.attrgetter`` of names that compile to direct access."""
    for name in (attr, *attrs):
        if type(name) is not str:
            raise TypeError("attribute name must be a string")
        _check_name(name, name.split("."))
    return operator.attrgetter(attr, *attrs)


class methodcaller:  # noqa: N801 - the library's name
    """``operator.methodcaller`` of a name that compiles to direct access."""

    __slots__ = ("_args", "_keywords", "_name")

    def __init__(self, name: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if type(name) is not str:
            raise TypeError("method name must be a string")
        _check_name(name, [name])
        self._name, self._args, self._keywords = name, args, kwargs

    def __call__(self, obj: Any) -> Any:  # noqa: ANN401
        """Call the method of `obj`."""
        return call_masked(getattr(obj, self._name), *self._args, **self._keywords)


methodcaller.__module__ = "operator"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"attrgetter": attrgetter, "methodcaller": methodcaller}
