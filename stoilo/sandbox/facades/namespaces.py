"""`types`: plain records, with the attribute rule on their keyword names."""

from __future__ import annotations

import types
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.refusals import GuardError
from stoilo.sandbox.rules import NameKind, attribute_kind
from stoilo.sandbox.stand_in import StandIn

__all__ = ["build"]


class SimpleNamespace(metaclass=StandIn):
    """Stands for ``types.SimpleNamespace``."""

    __stoilo_real__ = types.SimpleNamespace

    def __new__(cls, **attributes: Any) -> Any:  # noqa: ANN401
        """Return a real namespace; names that a task cannot assign are refused."""
        for name in attributes:
            if type(name) is not str or attribute_kind(name) is not NameKind.PLAIN:
                raise GuardError("STO-G102", "an attribute name is reserved")
        return types.SimpleNamespace(**attributes)


SimpleNamespace.__module__ = "types"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"SimpleNamespace": SimpleNamespace}
