"""Load compiled source as the task module, with builtins made for its level.

Loading already executes (decorators, defaults, class bodies): only ever in the jail.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level
from stoilo.sandbox.facades.tree import FacadeTree, build_facades
from stoilo.sandbox.language.builtin_types import seal_text, seal_unicode_errors
from stoilo.sandbox.language.extensions import Extensions
from stoilo.sandbox.language.guards import Guards, import_loaded
from stoilo.sandbox.language.hooks import call_masked, check_group, make_hook
from stoilo.sandbox.language.output import TaskPrinter
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.stand_ins import hide_class

# Notices what libraries ask for after the jail has closed, when nothing can be loaded


class LateImports:
    """A finder that finds nothing and remembers that it was asked.

    Attributes:
        asked: whether anything was missed since the zygote was ready.
    """

    def __init__(self) -> None:
        self.asked = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Note the question and leave it to the next finder, whose files are shut off."""
        del name, path, target
        self.asked = True

    def noting(self, importer: Callable[..., None]) -> Callable[..., None]:
        """Return `importer`, a task's ``__import__``, with its failures noted."""

        def import_noted(name: str, *more: object) -> None:
            try:
                importer(name, *more)
            except ModuleNotFoundError:
                self.asked = True
                raise

        return import_noted


LATE_IMPORTS = LateImports()


class LanguageRuntime:
    """Everything a level needs before the first source arrives; built in the zygote.

    Attributes:
        level: the level served.
        facades: its façades.
        guards: its guards.
    """

    def __init__(self, level: Level, facades: FacadeTree) -> None:
        self.level = level
        self.facades = facades
        self.guards = Guards(
            tuple(facades.modules.values()),
            facades.stand_ins,
            Extensions(level.overrides, facades.modules),
            hide_class,
        )
        self._builtins = self._make_builtins()

    def _make_builtins(self) -> dict[str, Any]:
        guards, facades = self.guards, self.facades
        special: dict[str, Any] = {
            "getattr": guards.getattr,
            "setattr": guards.setattr,
            "hasattr": guards.hasattr,
            "delattr": guards.delattr,
            "type": guards.type_class,
            "vars": guards.vars,
            "print": None,
        }
        names: dict[str, Any] = {}
        for name in self.level.builtins:
            if name.startswith("_") or not hasattr(builtins, name):
                raise InternalError("STO-G130", f"level data name a builtin {name!r}")
            names[name] = special.get(name, getattr(builtins, name))
        return names | {
            "__build_class__": guards.build_class,
            "__import__": LATE_IMPORTS.noting(import_loaded),
            "_stoilo_type": type,
            "_stoilo_type_of": guards.type_of,
            "_stoilo_own_types": guards.own_types,
            "_stoilo_check_self": guards.check_self,
            "_stoilo_hook": make_hook(),
            "_stoilo_group": check_group,
            "_stoilo_getattr": guards.read,
            "_stoilo_write": guards.write,
            "_stoilo_masked": call_masked,
            "_stoilo_import": facades.import_module,
            "_stoilo_import_name": facades.import_name,
        }

    def load(self, code: CodeType, printer: TaskPrinter) -> ModuleType:
        """Execute `code` (from `compile_source`) as the task module and return it.

        It is registered in ``sys.modules``, where dataclasses look it up. Raises whatever
        the source raises.
        """
        module = ModuleType(TASK_MODULE)
        module.__dict__["__builtins__"] = self._builtins | {
            "print": printer.print,
            "_stoilo_known": self.guards.remember_in(module.__dict__),
            "_stoilo_seen": self.guards.see_in(module.__dict__),
        }
        sys.modules[TASK_MODULE] = module
        exec(code, module.__dict__)  # noqa: S102 - the one place, inside the jail
        return module


def prepare_runtime(level: Level) -> LanguageRuntime:
    """Import and build what `level` hands out; slow, once a zygote."""
    seal_text()
    seal_unicode_errors()
    return LanguageRuntime(level, build_facades(level))
