"""`dataclasses`: the decorator rewrites the task's own classes only."""

from __future__ import annotations

import dataclasses
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.guards import GuardError, is_own_class

__all__ = ["build"]


def dataclass(cls: Any = None, /, **options: Any) -> Any:  # noqa: ANN401
    """``dataclasses.dataclass``."""

    def decorate(target: Any) -> Any:  # noqa: ANN401
        if not isinstance(target, type) or not is_own_class(target):
            raise GuardError("STO-G102", "dataclass() needs a class of the task itself")
        return dataclasses.dataclass(target, **options)

    return decorate if cls is None else decorate(cls)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"dataclass": dataclass}
