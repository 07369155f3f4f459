"""Closed members: library classes whose instances show the names a level lists, no others.

A façade bounds what a module holds; plain attributes of *instances* compile to direct
access. So a class that carries more than data (tensors, modules, optimisers) is closed
itself, once, in the zygote: every public name that the level does not list raises. That
holds for every road to it: direct access, ``getattr``, a library that takes names.
"""

from __future__ import annotations

import importlib
from typing import NoReturn

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level
from stoilo.sandbox.language.refusals import GuardError

__all__ = ["Closed", "close_members", "find_class", "hidden_names"]


class Closed:
    """Stands where a library class had a name that no task may use."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: str, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise GuardError(
            "STO-G101",
            f"the attribute {self._name!r} of a {self._owner} is out of reach",
            hint="a task sees the public interface of library objects only",
        )

    def __set__(self, instance: object, value: object) -> NoReturn:
        raise GuardError(
            "STO-G102",
            f"the attribute {self._name!r} of a {self._owner} cannot be changed",
            hint="a task changes its own objects, not modules or library classes",
        )


def find_class(dotted: str) -> type:
    """Return the class that a level calls `dotted` or raise ``STO-G130``."""
    module, _, name = dotted.rpartition(".")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, type):
        raise InternalError("STO-G130", f"level data name no class {dotted}")
    return found


def hidden_names(cls: type, listed: tuple[str, ...]) -> list[str]:
    """Return the public names of `cls` that are not `listed`, sorted."""
    kept = frozenset(listed)
    return [name for name in dir(cls) if not name.startswith("_") and name not in kept]


def close_members(level: Level) -> None:
    """Close what the level's classes define and do not list (in the zygote, once).

    Raises:
        InternalError: ``STO-G130`` the level lists a name that the class lacks.
    """
    for dotted, listed in level.members.items():
        cls = find_class(dotted)
        absent = [name for name in listed if not hasattr(cls, name)]
        if absent:
            raise InternalError("STO-G130", f"level data name {dotted}.{absent[0]}")
        for name in hidden_names(cls, listed):
            setattr(cls, name, Closed(cls.__name__, name))
