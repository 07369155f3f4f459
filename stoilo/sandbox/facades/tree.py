"""Façades: what a task gets for a library module, name by name, from the level's data.

A façade is a plain module object (attribute reads are as fast as on a real one) which is
never in ``sys.modules`` and holds the listed names only, so ``random._os`` and friends do
not exist. Guards refuse assignment to it. Names that need care are replaced by what the
rule's module of façades makes: its ``FACADES`` holds a builder for each library module.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

import msgspec

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level, ModuleRule
from stoilo.sandbox.language.receivers import bind_receivers, classes_with_bases
from stoilo.sandbox.language.rules import GuardError

_LATER_PYTHONS = ("_pylong",)
"""What CPython 3.12 and later import when a task first needs it: long numbers as text."""


class FacadeTree(msgspec.Struct, frozen=True):
    """Every façade of a level.

    Attributes:
        modules: by full dotted name, parents included.
        stand_ins: real class → what ``type(x)`` shows for it.
    """

    modules: dict[str, ModuleType]
    stand_ins: dict[type, type]

    def import_module(self, dotted: str, full: bool) -> ModuleType:
        """Return what ``import a.b`` (or, if `full`, ``import a.b as c``) binds."""
        if dotted not in self.modules:
            raise ImportError(f"no module named {dotted!r} at this level")
        return self.modules[dotted if full else dotted.partition(".")[0]]

    def import_name(self, dotted: str, name: str) -> object:
        """Return what ``from a.b import name`` binds."""
        module = self.import_module(dotted, full=True)
        if name in module.__dict__ and not name.startswith("__"):
            return module.__dict__[name]
        raise ImportError(f"cannot import {name!r} from {dotted!r} at this level")


def build_facades(level: Level) -> FacadeTree:
    """Import the level's modules and build their façades (in the zygote, once).

    Raises:
        InternalError: ``STO-G130`` when the level's data do not fit the library.
    """
    for name in level.preload:
        importlib.import_module(name)
    for name in _LATER_PYTHONS:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    modules: dict[str, ModuleType] = {}
    stand_ins: dict[type, type] = {}
    for dotted, rule in sorted(level.modules.items()):
        facade = ModuleType(dotted)
        facade.__dict__.update(_contents(dotted, rule, level))
        modules[dotted] = facade
        stand_ins.update(_stand_ins(facade))
    close_members(level)
    bind_receivers(classes_with_bases(modules.values()))
    _link(modules)
    return FacadeTree(modules, stand_ins)


def _contents(dotted: str, rule: ModuleRule, level: Level) -> dict[str, object]:
    replaced: dict[str, object] = {}
    if rule.facade:
        replaced = importlib.import_module(rule.facade).FACADES[dotted](level)
    missing = [name for name in rule.names if name not in replaced]
    real = importlib.import_module(dotted) if missing else None
    contents: dict[str, object] = {}
    for name in rule.names:
        value = replaced[name] if name in replaced else getattr(real, name, _ABSENT)
        if value is _ABSENT or isinstance(value, ModuleType):
            raise InternalError("STO-G130", f"level data name {dotted}.{name} wrongly")
        contents[name] = value
    return contents


_ABSENT = object()


def _stand_ins(facade: ModuleType) -> dict[type, type]:
    """A stand-in class names what it stands for in ``__stoilo_real__``."""
    return {
        value.__dict__["__stoilo_real__"]: value
        for value in facade.__dict__.values()
        if isinstance(value, type) and "__stoilo_real__" in value.__dict__
    }


def _link(modules: dict[str, ModuleType]) -> None:
    for dotted in sorted(modules):
        child = modules[dotted]
        while (parent_name := dotted.rpartition(".")[0]) != "":
            parent = modules.setdefault(parent_name, ModuleType(parent_name))
            parent.__dict__.setdefault(dotted.rpartition(".")[2], child)
            dotted, child = parent_name, parent  # noqa: PLW2901 - climbs to the root


# Closed members: library classes whose instances show the names a level lists, no others
#
# A façade bounds what a module holds; plain attributes of *instances* compile to direct
# access. So a class that carries more than data (tensors, modules, optimisers) is closed
# itself, once, in the zygote: every public name that the level does not list raises. That
# holds for every road to it: direct access, ``getattr``, a library that takes names.


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
