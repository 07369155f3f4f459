"""A library's whole package, closed in the zygote: what it evaluates, whom its methods take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

from stoilo.sandbox.language.hardening import bind_receivers
from stoilo.sandbox.language.rules import GuardError, refuse_read, refuse_write

_EVALUATING = ("eval", "exec", "compile", "open", "__import__")


def refuse(*_args: Any, **_options: Any) -> NoReturn:
    """Stand for what evaluates, imports or opens."""
    raise GuardError(
        "STO-G020",
        "libraries evaluate no Python and open no files in a task",
        hint="build expressions of symbols, functions and numbers",
    )


def modules_of(root: str) -> Iterator[ModuleType]:
    """Yield the loaded modules of the package `root`."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == root and isinstance(module, ModuleType):
            yield module


def shut_builtins(root: str) -> None:
    """Let ``eval``, ``exec``, ``compile``, ``open`` refuse inside the package `root`.

    A name of a module's own goes before the builtin; one that is there already stays.
    """
    for module in modules_of(root):
        if module.__name__ == root:
            continue  # sympy looks functions up in mpmath by names of a task's
        for name in _EVALUATING:
            vars(module).setdefault(name, refuse)


def bind_classes(root: str) -> None:
    """Make the methods of every class of the package `root` demand an instance.

    Instances lead to classes that no façade lists (``number.context.matrix``).
    """
    kinds: dict[int, type] = {}
    todo = [value for module in modules_of(root) for value in vars(module).values()]
    while todo:  # classes inside classes too (``sympy.EX.Expression``)
        value = todo.pop()
        own = isinstance(value, type) and value.__module__.partition(".")[0] == root
        if own and id(value) not in kinds:
            kinds[id(value)] = value
            todo += vars(value).values()
    bind_receivers(kinds.values())


ABSENT = object()
"""Stands for the member of a class that only its instances have."""


class Inner:
    """A public name of a library class that code of the library alone may use.

    Args:
        name: of the member.
        found: the member, `ABSENT` for none.
        modules: how the names of modules begin whose code may use it. None of their
            functions that spell `name` calls what a task hands over.
    """

    __slots__ = ("_found", "_modules", "_name")

    def __init__(self, name: str, found: Any, modules: tuple[str, ...]) -> None:
        self._name, self._found, self._modules = name, found, modules

    def _is_inside(self) -> bool:
        # Whoever asks spells the name itself: libraries also call what a task hands them,
        # such as attrgetter. A module is known by its very dictionary.
        frame = sys._getframe(2)  # noqa: SLF001 - who asks decides
        names = frame.f_globals
        module = str(names.get("__name__"))
        known = getattr(sys.modules.get(module), "__dict__", None) is names
        inside = known and module.startswith(self._modules)
        return inside and self._name in frame.f_code.co_names

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if not self._is_inside():
            raise refuse_read(owner if instance is None else instance, self._name)
        if instance is not None and self._name in instance.__dict__:
            return instance.__dict__[self._name]
        if self._found is ABSENT:
            raise AttributeError(self._name)
        get = getattr(type(self._found), "__get__", None)
        return self._found if get is None else get(self._found, instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        if not self._is_inside():
            raise refuse_write(instance, self._name)
        if hasattr(type(self._found), "__set__"):
            type(self._found).__set__(self._found, instance, value)
        else:
            instance.__dict__[self._name] = value

    def __delete__(self, instance: Any) -> None:
        if not self._is_inside():
            raise refuse_write(instance, self._name)
        instance.__dict__.pop(self._name, None)
