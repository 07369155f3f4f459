"""Walk what a task can reach from the names of one level, two calls deep, and print it.

    python tests/sandbox/reachable/walk.py LEVEL > tests/sandbox/reachable/LEVEL.txt

From every name of every façade: read each plain attribute, call what can be called with
every sample that fits, look into the first items of what can be iterated, and do the same
once more with what the calls gave. A line is a type (or a class that was handed out)
with the plain names that its instances show; lines starting with ``LEAK`` are roads to a
module, frame, code object, file or power, or to a method that takes any ``self``. The
process that walks calls library functions with nonsense: run it in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import inspect
import io
import itertools
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoilo.policies.levels import load_level
from stoilo.sandbox.language.hardening import trusting_methods
from stoilo.sandbox.language.rules import Closed, NameKind, attribute_kind
from stoilo.sandbox.language.runtime import LanguageRuntime, prepare_runtime

CALLS_DEEP = 2
ITEMS = 3
CALL_S = 2.0
LEFT_OUT = frozenset({"exit", "sleep"})
WAITING = frozenset(
    {"acquire", "acquire_lock", "get", "join", "put", "wait", "wait_for"}
)
"""Methods of the module ``queue`` that would wait for another thread."""
FORBIDDEN = (
    *(types.FrameType, types.CodeType, types.TracebackType, types.CellType),
    *(importlib.machinery.ModuleSpec, io.FileIO, io.BufferedReader),
    *(io.BufferedWriter, io.TextIOWrapper, ctypes._SimpleCData, ctypes.Structure),
)
POWERS = [open, eval, exec, compile, globals, getattr, setattr, __import__, vars]

Sample = tuple[Any, ...]


def plain_samples() -> list[Sample]:
    """Arguments of plain Python, new ones for every call."""
    return [
        *((), (2,), (2.5,), ("a",), (b"ab",), ([3, 1, 2],), ({"a": 1},), (int,)),
        *((2, 3), ("a", "b"), ([1, 2], [3, 4]), (len, ["a", "b"]), ("a", 1)),
        *((lambda *_: 1,), (iter([1, 2]),), (None,), (ValueError("x"),)),
    ]


def array_samples() -> list[Sample]:
    """Arguments for numpy."""
    import numpy as np  # noqa: PLC0415 - level pure has none

    ones = np.ones((3, 3)) + np.eye(3)
    return [
        *((ones,), (ones, ones), (ones, 1), (np.arange(3),), (np.float64(1.0),)),
        *(((3, 3),), ("f8",), (np.sin, 1), ("ij,jk->ik", ones, ones)),
    ]


def tensor_samples() -> list[Sample]:
    """Arguments for torch."""
    import torch  # noqa: PLC0415 - only level tensor pays for it

    ones = torch.ones(3, 3) + torch.eye(3)
    leaf = torch.ones(3, requires_grad=True)
    images = torch.ones(1, 3, 8, 8)
    layer = torch.nn.Linear(3, 3)
    return [
        *((ones,), (ones, ones), (ones, 1), (leaf,), ((leaf * 2).sum(),), (images,)),
        *((torch.arange(3),), (torch.float32,), (layer,), ([leaf],), ([leaf], 0.1)),
        *((torch.optim.SGD([leaf], 0.1), 2), (3, 3), (3, 3, 3), (ones, ones, ones)),
        *((torch.distributions.Normal(0.0, 1.0),), (layer.parameters(),)),
        *((lambda x: x.sum(), ones), (layer.state_dict(),), (torch.Size([3]),)),
    ]


SAMPLES: dict[str, tuple[Callable[[], list[Sample]], ...]] = {
    "pure": (plain_samples,),
    "numeric": (plain_samples, array_samples),
    "tensor": (plain_samples, tensor_samples),
}
"""By level; what only a narrower level's modules take is walked there."""


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
def bounded() -> Iterator[None]:
    """Stop a call that takes too long, where Python gets a say."""
    signal.setitimer(signal.ITIMER_REAL, CALL_S)
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
        lines: type or class → its plain names.
        leaks: roads to what no task may have.
        depths: where each thing was seen first.
        calls: how many calls were tried.
    """

    runtime: LanguageRuntime
    samples: Callable[[], list[Sample]]
    lines: dict[str, list[str]] = field(default_factory=dict)
    leaks: set[str] = field(default_factory=set)
    depths: dict[object, int] = field(default_factory=dict)
    calls: int = 0

    def start(self) -> None:
        """Walk every name of every façade."""
        facades = self.runtime.facades.modules
        own = set(map(id, facades.values()))
        self.allowed_modules = own
        for dotted, facade in sorted(facades.items()):
            for name, value in sorted(vars(facade).items()):
                if not name.startswith("__") and id(value) not in own:
                    self.visit(f"{dotted}.{name}", value, 0, (dotted, name))

    def visit(self, path: str, value: Any, depth: int, key: object) -> None:
        """Record `value`, follow its attributes and items, call it if that is allowed."""
        if isinstance(value, type):
            key = ("class", value)
        elif not callable(value) or not isinstance(key, tuple):
            key = ("instance", type(value))
        if self.depths.get(key, CALLS_DEEP + 1) <= depth:
            return
        self.depths[key] = depth
        if self.is_leak(value):
            self.leaks.add(f"LEAK {path}")
            return
        if isinstance(value, type):
            self.check_methods(path, value)
        self.record(value)
        self.follow(path, value, depth)
        if depth < CALLS_DEEP and callable(value):
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
            try:
                child = getattr(value, name)
            except Exception:  # noqa: BLE001, S112 - closed, or does not fit the state
                continue
            owner = id(value) if isinstance(value, type) else type(value)
            self.visit(f"{path}.{name}", child, depth, (owner, name))
        if isinstance(value, str | bytes | type):
            return
        try:
            items = list(itertools.islice(iter(value), ITEMS))
        except Exception:  # noqa: BLE001 - not iterable
            return
        for item in items:
            self.visit(f"{path}[…]", item, depth, None)

    def call(self, path: str, value: Any, depth: int) -> None:
        """Call with every sample and visit what comes back."""
        name = path.rpartition(".")[2]
        if name in LEFT_OUT or (path.startswith("queue.") and name in WAITING):
            return
        for sample in self.samples():
            self.calls += 1
            try:
                with bounded():
                    result = value(*sample)
            except BaseException:  # noqa: BLE001, S112 - most samples do not fit
                continue
            self.visit(f"{path}()", result, depth + 1, None)


def open_road() -> types.SimpleNamespace:
    """A leak for the control: a module behind two calls."""
    return types.SimpleNamespace(deeper=lambda: sys)


def render(name: str, *, control: bool = False) -> str:
    """Return the list of one level, with a leak put in for the `control`."""
    makers = SAMPLES[name]
    runtime = prepare_runtime(load_level(name))
    if control:
        leaky = types.ModuleType("leaky")
        vars(leaky)["open_road"] = open_road
        runtime.facades.modules["leaky"] = leaky
    walk = Walk(runtime, lambda: [sample for make in makers for sample in make()])
    walk.start()
    lines = [f"{kind}: {' '.join(names)}" for kind, names in walk.lines.items()]
    return "".join(f"{line}\n" for line in sorted([*walk.leaks, *lines]))


def main() -> None:
    """Print the list of the level named on the command line."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(20_000)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        text = render(sys.argv[-1], control="--control" in sys.argv)
    sys.stdout.write(text)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
