"""A library's whole package, closed in the zygote: what it evaluates, whom its methods take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

from stoilo.sandbox.language.hardening import bind_receivers
from stoilo.sandbox.language.rules import GuardError

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
