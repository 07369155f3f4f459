"""What a level's runs find prepared: seed and clock, façades, guards, builtins, print.

Honest copies agree (I7) because everything random derives from the admission's seed and the
item's index, and time is the admission's, in UTC. A façade is a plain module object (reads
are as fast as on a real one) that is never in ``sys.modules`` and holds the names that the
level lists, so ``random._os`` and friends do not exist. Guards refuse assignment to it.
Names that need care are replaced by what the rule's module of façades makes: its
``FACADES`` holds a table for each library module, or what builds one.
"""

from __future__ import annotations

import builtins
import ctypes
import datetime as dt
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CodeType, ModuleType
from typing import Any, Protocol

import msgspec

from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import InternalError
from stoilo.core.levels import Level, ModuleRule
from stoilo.sandbox.language.guards import Guards, import_loaded
from stoilo.sandbox.language.hardening import (
    bind_receivers,
    classes_with_bases,
    seal_text,
    seal_unicode_errors,
)
from stoilo.sandbox.language.hooks import call_masked, check_group, make_hook
from stoilo.sandbox.language.ownership import Extensions
from stoilo.sandbox.language.rules import TASK_MODULE, close_members
from stoilo.sandbox.language.substitutes import hide_class

_TICK_S = 1e-6
_STEP_TICKS = 1 << 32
"""What a step adds to the stopwatch: more than it can be read within one step."""


class RunState(msgspec.Struct):
    """Seed and clock of the run in this process."""

    seed: bytes = bytes(32)  # from the admission
    index: int = 0  # the item's index
    step: int = 0  # how many states the item has yielded
    now: int = 0  # admitted_at, s since 1970-01-01 UTC
    drawn: int = 0  # how many derived seeds were handed out in this step of the item
    ticks: int = 0  # how often a stopwatch was read; each reading is 1 µs later

    def next_seed(self) -> int:
        """Return the next 256-bit seed of this step, for a generator made without one."""
        self.drawn += 1
        numbers = (self.index, self.drawn, *((self.step,) if self.step else ()))
        parts = (number.to_bytes(8, "big") for number in numbers)
        return int(domain_digest(Domain.SEED, self.seed, *parts), 16)

    def elapsed_s(self) -> float:
        """Return a stopwatch reading: monotonic, equal on every copy."""
        self.ticks += 1
        return self.ticks * _TICK_S


# One a process: a jailed child runs one task.
RUN = RunState()


def start_item(seed: bytes, index: int, now: int) -> None:
    """Seed every generator for item `index`, each if its library is loaded."""
    RUN.seed, RUN.index, RUN.now = seed, index, now
    start_step(0)


def start_step(step: int) -> None:
    """Seed every generator for what follows the `step`-th state that the item yielded.

    The streams depend on seed, item and step alone: a run that goes on from a state draws
    what the uninterrupted one draws after the same state.
    """
    RUN.step, RUN.drawn, RUN.ticks = step, 0, step * _STEP_TICKS
    first, number = RUN.next_seed(), RUN.next_seed()
    if (random := sys.modules.get("random")) is not None:
        random.seed(first)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        words = [number >> shift & 0xFFFFFFFF for shift in range(0, 256, 32)]
        numpy_random.seed(words)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(number & 0x7FFFFFFFFFFFFFFF)


# The clock of `datetime` stands still, for library code and for every instance too
#
# A façade's ``datetime.now`` is not the only way to ask: an argument or a sum is a real
# ``datetime``, and its class method ``now`` reads the host's clock. That clock cannot be taken
# away by a filter (vDSO), so the methods are replaced in the process that runs tasks.


def _now(cls: Any, tz: dt.tzinfo | None = None) -> Any:
    # Return admitted_at in `tz`, naive UTC without one (the zone of the jail)
    return cls.fromtimestamp(RUN.now, tz)


def _today(cls: Any) -> Any:
    return cls.fromtimestamp(RUN.now)


def _replace(kind: type, **methods: Any) -> None:
    # The type is C's and takes no assignment; its dictionary is behind the proxy.
    (names,) = gc.get_referents(kind.__dict__)
    for name, method in methods.items():
        method.__name__ = name
        names[name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def stop_clock() -> None:
    """Let ``now``, ``utcnow`` and ``today`` be the admission's time; in a zygote only."""
    _replace(dt.date, today=_today)
    _replace(dt.datetime, now=_now, utcnow=_today)


_LATER_PYTHONS = ("_pylong",)
"""What CPython 3.12 and later import when a task first needs it: long numbers as text."""


class FacadeTree(msgspec.Struct, frozen=True):
    """Every façade of a level."""

    modules: dict[str, ModuleType]  # by full dotted name, parents included
    stand_ins: dict[type, type]  # real class → what ``type(x)`` shows for it

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
    """Import the level's modules and build their façades (in the zygote, once)."""
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
        made = importlib.import_module(rule.facade).FACADES[dotted]
        replaced = made(level) if callable(made) else made
    missing = [name for name in rule.names if name not in replaced]
    real = importlib.import_module(dotted) if missing else None
    contents: dict[str, object] = {}
    for name in rule.names:
        value = replaced[name] if name in replaced else getattr(real, name, _ABSENT)
        if value is _ABSENT or isinstance(value, ModuleType):
            raise InternalError("STO-P001", f"level data name {dotted}.{name} wrongly")
        contents[name] = value
    return contents


_ABSENT = object()


def _stand_ins(facade: ModuleType) -> dict[type, type]:
    # A stand-in class names what it stands for in ``__stoilo_real__``
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


# Notices what libraries ask for after the jail has closed, when nothing can be loaded


class LateImports:
    """A finder that finds nothing and remembers that it was asked."""

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


# What the task prints

CUT_NOTE = "\n[output cut here]\n"


class OutputSink(Protocol):
    """Where printed text goes; the supervisor's output pipe in the jail."""

    def write(self, text: str) -> object:
        """Take `text`."""


_redirected: list[tuple[Any, Any]] = []  # where the task prints to, and did before


def redirect_output(target: Any) -> None:
    """Let the task, and what prints for it, print to `target`, an object with ``write``."""
    _redirected.append((target, sys.stdout))
    sys.stdout = target


def restore_output() -> None:
    """Undo the last `redirect_output`."""
    if _redirected:
        _, sys.stdout = _redirected.pop()


class TaskPrinter:
    """The task's ``print`` and warnings.

    Attributes:
        limit: characters after which nothing more is passed on, None to leave the bound
            to the sink (the supervisor kills the run there and says so).
    """

    def __init__(self, sink: OutputSink, limit: int | None = None) -> None:
        self._sink = sink
        self._left = limit

    def write(self, text: str) -> None:
        """Pass on `text`, cut at the limit."""
        if self._left is None:
            self._sink.write(text)
            return
        if self._left <= 0:
            return
        self._sink.write(text[: self._left])
        self._left -= len(text)
        if self._left <= 0:
            self._sink.write(CUT_NOTE)

    def print(
        self,
        *values: object,
        sep: str | None = None,
        end: str | None = None,
        file: object = None,
        flush: bool = False,
    ) -> None:
        """``print``; `file` is an object with ``write`` (io.StringIO), `flush` is moot."""
        del flush
        for name, text in (("sep", sep), ("end", end)):
            if text is not None and not isinstance(text, str):
                raise TypeError(
                    f"{name} must be None or a string, not {type(text).__name__}"
                )
        line = str.join(" " if sep is None else sep, map(str, values))
        line = "".join((line, "\n" if end is None else end))  # exact text in any case
        if file is None and _redirected:
            file = _redirected[-1][0]
        if file is None:
            self.write(line)
        else:
            file.write(line)  # type: ignore[attr-defined]  # AttributeError is the task's

    def show_warning(
        self, message: object, category: type, *_place: object, **_more: object
    ) -> None:
        """``warnings.showwarning`` without the path and line that stock prints."""
        self.write(f"{category.__name__}: {message}\n")

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


class LanguageRuntime:
    """Everything a level needs before the first source arrives; built in the zygote."""

    def __init__(self, level: Level, facades: FacadeTree) -> None:
        self.level = level
        self.facades = facades
        self.kept: dict[str, CodeType] = {}  # by its whole text, see `task_job.prepare`
        self.guards = Guards(
            tuple(facades.modules.values()),
            facades.stand_ins,
            Extensions(level.overrides, facades.modules),
            hide_class,
            level.writable,
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
                raise InternalError("STO-P001", f"level data name a builtin {name!r}")
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
