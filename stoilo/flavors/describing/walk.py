"""Walk what a task can reach from the names of façades, two calls deep.

From every name: read each plain attribute, call what can be called with every sample that
fits, look into the first items of what can be iterated, and do the same once more with what
the calls gave. Leaks are roads to a module, frame, code object, file or power, or to a
method that takes any ``self``. Library functions are called with nonsense: the process
that walks does nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import inspect
import io
import itertools
import math
import signal
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stoilo.flavors.describing.samples import Sample
from stoilo.sandbox.language.hardening import trusting_methods
from stoilo.sandbox.language.rules import Closed, NameKind, attribute_kind
from stoilo.sandbox.language.runtime import LanguageRuntime

ITEMS = 3
LEFT_OUT = frozenset({"exit", "sleep"})
WAITING = frozenset(
    {"acquire", "acquire_lock", "get", "join", "put", "wait", "wait_for"}
)
"""Methods of the module ``queue`` that would wait for another thread."""
FORBIDDEN = (
    *(types.FrameType, types.CodeType, types.TracebackType, types.CellType),
    *(importlib.machinery.ModuleSpec, io.FileIO, io.BufferedReader),
    *(io.BufferedWriter, io.TextIOWrapper, ctypes.Structure, *ctypes.c_int.__bases__),
)
POWERS = [open, eval, exec, compile, globals, getattr, setattr, __import__, vars]


def name_of(cls: type) -> str:
    """Return the full name of a class."""
    return f"{type.__dict__['__module__'].__get__(cls)}.{cls.__qualname__}"


def plain_names(value: object) -> list[str]:
    """Return what ``value.name`` compiles to direct access for, sorted."""
    try:
        names = {name for name in dir(value) if type(name) is str}
    except Exception:  # noqa: BLE001 - a library object without a dictionary
        return []
    return sorted(
        name
        for name in names
        if not name.startswith("_")
        and attribute_kind(name) is NameKind.PLAIN
        and not isinstance(inspect.getattr_static(value, name, None), Closed)
    )


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Stop a call that takes too long, where Python gets a say."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass
class Walk:
    """What was seen so far.

    Attributes:
        runtime: the level, prepared.
        samples: makes the arguments to call with.
        honest: makes those that fit what is walked, and the empty ones; places of calls
            with others, and of what these gave, have ``(…)`` in them. None: all are alike.
        lines: type or class → its plain names.
        leaks: roads to what no task may have.
        depths: where each thing was seen first.
        calls: how many calls were tried.
        deep: how many calls deep it goes.
        call_s: after how many seconds a call is stopped.
        skipped: what is not done, as `note` was told.
        note: told each path before something is done with it.
        classes: every class that came by, or an instance of it.
        until: when to stop, in `time.monotonic`'s seconds. Everything is walked with honest
            arguments alone first where there is such a time.
        done: how many names are walked; an earlier walk's are passed over.
        save: told after each name.
    """

    runtime: LanguageRuntime
    samples: Callable[[], list[Sample]]
    lines: dict[str, list[str]] = field(default_factory=dict)
    leaks: set[str] = field(default_factory=set)
    depths: dict[object, int] = field(default_factory=dict)
    calls: int = 0
    deep: int = 2
    call_s: float = 2.0
    skipped: frozenset[str] = frozenset()
    note: Callable[[str], object] = id
    classes: dict[type, None] = field(default_factory=dict)
    honest: Callable[[], list[Sample]] | None = None
    until: float = math.inf
    done: int = 0
    save: Callable[[Walk], object] = id
    careful: bool = False  # honest arguments alone, now

    @property
    def is_late(self) -> bool:
        """Whether nothing more is to be looked at."""
        return time.monotonic() >= self.until

    def start(self, within: str = "") -> None:
        """Walk every name of every façade, or of the modules of one package."""
        facades = self.runtime.facades.modules
        own = set(map(id, facades.values()))
        self.allowed_modules = own
        names = [
            (dotted, name, value)
            for dotted, facade in sorted(facades.items())
            if not within or dotted.partition(".")[0] == within
            for name, value in sorted(vars(facade).items())
            if not name.startswith("__") and id(value) not in own
        ]
        passes = (True, False) if self.until < math.inf else (False,)
        steps = [*itertools.product(passes, names)]
        for careful, (dotted, name, value) in steps[self.done :]:
            if careful is not self.careful:
                self.careful = careful
                self.depths.clear()
                self.save(self)
            self.visit(f"{dotted}.{name}", value, 0, (dotted, name))
            if self.is_late:
                return
            self.done += 1
            self.save(self)

    def visit(self, path: str, value: Any, depth: int, key: object) -> None:
        """Record `value`, follow its attributes and items, call it if that is allowed."""
        if isinstance(value, type):
            key = ("class", value)
        elif not callable(value) or not isinstance(key, tuple):
            key = ("instance", type(value))
        if self.depths.get(key, self.deep + 1) <= depth or self.is_late:
            return
        self.depths[key] = depth
        if self.is_leak(value):
            self.leaks.add(f"LEAK {path}")
            return
        if isinstance(value, type):
            self.check_methods(path, value)
        self.classes.setdefault(value if isinstance(value, type) else type(value))
        self.record(value)
        self.follow(path, value, depth)
        if depth < self.deep and callable(value):
            self.call(path, value, depth)

    def is_leak(self, value: object) -> bool:
        """Whether no task may have `value`; it is not followed then."""
        module = isinstance(value, types.ModuleType)
        return (
            (module and id(value) not in self.allowed_modules)
            or isinstance(value, FORBIDDEN)
            or any(value is power for power in POWERS)
            or type(value).__name__ == "PyCapsule"
            or (type(value) is dict and "__builtins__" in value)
        )

    def check_methods(self, path: str, cls: type) -> None:
        """Report methods that can be read off `cls` and take any object for ``self``."""
        for base in cls.__mro__:
            for name in trusting_methods(base):
                self.leaks.add(f"LEAK {path}: {name_of(base)}.{name}")

    def record(self, value: object) -> None:
        """Keep the names that this type shows and none of its bases does."""
        if isinstance(value, types.ModuleType):
            return
        cls = value if isinstance(value, type) else type(value)
        inherited = set(itertools.chain(*map(plain_names, cls.__mro__[1:])))
        names = self.lines.setdefault(name_of(cls), [])
        names[:] = sorted(set(names).union(plain_names(value)) - inherited)
        for base in cls.__mro__[1:]:
            if name_of(base) not in self.lines:
                self.record(base)

    def follow(self, path: str, value: Any, depth: int) -> None:
        """Visit attributes and the first items."""
        for name in plain_names(value):
            if f"{path}.{name}" in self.skipped:
                continue
            self.note(f"{path}.{name}")
            try:
                with bounded(self.call_s):
                    child = getattr(value, name)
            except BaseException:  # noqa: BLE001, S112 - closed, late, or out of its state
                continue
            owner = id(value) if isinstance(value, type) else type(value)
            self.visit(f"{path}.{name}", child, depth, (owner, name))
        if isinstance(value, str | bytes | type) or f"{path}[…]" in self.skipped:
            return
        self.note(f"{path}[…]")
        try:
            with bounded(self.call_s):
                items = list(itertools.islice(iter(value), ITEMS))
        except BaseException:  # noqa: BLE001 - not iterable, or late
            return
        for item in items:
            self.visit(f"{path}[…]", item, depth, None)

    def call(self, path: str, value: Any, depth: int) -> None:
        """Call with every sample and visit what comes back."""
        name = path.rpartition(".")[2]
        if (
            name in LEFT_OUT
            or f"{path}()" in self.skipped
            or (path.startswith("queue.") and name in WAITING)
        ):
            return
        if self.honest:
            self.try_samples(f"{path}()", value, depth, self.honest)
        place = f"{path}(…)" if self.honest else f"{path}()"
        if place not in self.skipped and not self.careful:
            self.try_samples(place, value, depth, self.samples)

    def try_samples(
        self, place: str, value: Any, depth: int, samples: Callable[[], list[Sample]]
    ) -> None:
        """Call with each sample and visit what comes back."""
        for sample in samples():
            if self.is_late:
                return
            self.note(place)
            self.calls += 1
            try:
                with bounded(self.call_s):
                    result = value(*sample)
            except BaseException:  # noqa: BLE001, S112 - most samples do not fit
                continue
            self.visit(place, result, depth + 1, None)
