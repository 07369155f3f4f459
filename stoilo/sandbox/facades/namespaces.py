"""`types`: plain records with the attribute rule on their names; no makers of functions.

A function made of a code object and a dictionary would run without any guard, so the
types of functions and generators only tell what an object is. ``MethodType`` stays: what
it makes calls a function with one more argument, as `functools.partial` does.
"""

from __future__ import annotations

import types
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.refusals import GuardError
from stoilo.sandbox.language.rules import NameKind, attribute_kind
from stoilo.sandbox.language.stand_ins import StandIn, hide_class

__all__ = ["build"]


class SimpleNamespace(metaclass=StandIn):
    """Stands for ``types.SimpleNamespace``."""

    __stoilo_real__ = types.SimpleNamespace

    def __new__(cls, **attributes: Any) -> Any:
        """Return a real namespace; names that a task cannot assign are refused."""
        for name in attributes:
            if type(name) is not str or attribute_kind(name) is not NameKind.PLAIN:
                raise GuardError("STO-G102", "an attribute name is reserved")
        return types.SimpleNamespace(**attributes)


SimpleNamespace.__module__ = "types"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    function = hide_class(types.FunctionType)
    return {
        "BuiltinFunctionType": hide_class(types.BuiltinFunctionType),
        "FunctionType": function,
        "GeneratorType": hide_class(types.GeneratorType),
        "LambdaType": function,
        "SimpleNamespace": SimpleNamespace,
    }
