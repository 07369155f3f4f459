"""Call everything that a task can reach with hostile objects and print what comes out.

    python tests/sandbox/reachable/hostile.py [--unbound] [--control] LEVEL

The walk of `walk.py`, with arguments that lie: classes and functions as ``self``, objects
that claim another class, instances that were never initialised, mappings that tell each
reader something else. A line is a road to the real ``type``, to a module, frame, code
object or power, or to text of the task that was run as code. ``--unbound`` leaves methods
as the libraries made them and ``--control`` adds a function that runs its argument.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

from stoilo.flavors.describing.samples import Sample
from stoilo.flavors.describing.walk import Walk
from stoilo.policies.levels import load_level
from stoilo.sandbox.language import runtime as language_runtime
from stoilo.sandbox.language.rules import TASK_MODULE, find_class
from stoilo.sandbox.language.runtime import prepare_runtime

MARK = "stoilo_mark"
TEXT = f"{MARK}()"
BUILT = "Built"
ran: list[str] = []


class Anything:
    """Has every public attribute; each is a function that answers `int`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_args, **_named: int


class Foreign:
    """A class as ``self``: what asks for its class meets the real ``type``."""

    maps = ((), {})
    data = Anything()


class Liar:
    """Claims to be of whatever class it was made with."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    @property
    def __class__(self) -> type:
        return self.cls


class Faces(dict[Any, Any]):
    """A mapping that tells each of its readers something else."""

    def __iter__(self) -> Any:
        return iter(["good"])

    def items(self) -> Any:
        return [(TEXT, int), ("__class__", type)]

    def keys(self) -> Any:
        return [TEXT, "__globals__"]

    def __getitem__(self, key: object) -> str:
        return TEXT


class Word(str):
    """Text that is another text for whoever asks it."""

    __slots__ = ()

    def __str__(self) -> str:
        return TEXT

    def __format__(self, spec: str) -> str:
        return TEXT

    def isidentifier(self) -> bool:
        """Say yes."""
        return True


def plain_function(*values: object) -> object:
    """Return the first argument."""
    return values[0] if values else 0


def run_text(text: str) -> object:
    """Do what no library may do, for the control."""
    return eval(text, {})  # noqa: S307 - planted


for _own in (Anything, Foreign, Liar, Faces, Word, plain_function):
    _own.__module__ = TASK_MODULE


def blank_instances(level: Any) -> list[object]:
    """Return an instance that nothing initialised of each class that can be extended."""
    made = []
    for dotted in level.overrides:
        base = find_class(dotted.rstrip("+"))
        with contextlib.suppress(Exception):  # abstract, or a constructor that asks
            own = types.new_class("Own", (base,))
            own.__module__ = TASK_MODULE
            made.append(own.__new__(own))
    return made


def two_faced_class() -> type:
    """Return a class that only somebody with the real ``type`` could make."""
    annotations = Faces(good=int)
    return type("Two", (), {"__module__": TASK_MODULE, "__annotations__": annotations})


def hostile_samples(blank: list[object]) -> list[Sample]:
    """Return arguments that nobody honest has."""
    from collections import UserDict, UserList  # noqa: PLC0415 - after the façades

    return [
        *((int,), (Foreign,), (Foreign, BUILT), (plain_function,), (Foreign(),)),
        *((Liar(UserList),), (Liar(UserDict),), (Liar(dict), Liar(str)), (Faces(a=1),)),
        *(
            (TEXT,),
            (TEXT, TEXT),
            (two_faced_class(),),
            (Word("good"),),
            (Word("a"), [Word("b")]),
        ),
        *(
            ("N", Faces(a=1)),
            ("N", [TEXT]),
            ("N", {TEXT: int}),
            (plain_function, Faces()),
        ),
        *((one,) for one in blank),
    ]


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """Note code made of the task's text that is run."""
    if event == "exec" and isinstance(arguments[0], CodeType) and names(arguments[0]):
        ran.append(arguments[0].co_filename)


def names(code: CodeType) -> bool:
    """Whether `code`, or code inside it, calls the mark."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return MARK in code.co_names or any(map(names, inner))


class HostileWalk(Walk):
    """A walk that also looks for the real ``type`` and for text that ran."""

    def visit(self, path: str, value: Any, depth: int, key: object) -> None:
        """Report every road, not only the first, to ``type`` or to what it built."""
        if value is type or (isinstance(value, type) and value.__name__ == BUILT):
            self.leaks.add(f"LEAK {path}")
        super().visit(path, value, depth, key)

    def is_leak(self, value: object) -> bool:
        """Whether no task may have `value`."""
        return value is type or super().is_leak(value)

    def check_methods(self, path: str, cls: type) -> None:
        """Leave them to the calls."""

    def call(self, path: str, value: Any, depth: int) -> None:
        """Call, and see whether text ran."""
        super().call(path, value, depth)
        if ran:
            self.leaks.add(f"RAN {path}")
            ran.clear()


def main() -> None:
    """Print the roads found at the level named on the command line."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(20_000)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    level = load_level(sys.argv[-1])
    if "--unbound" in sys.argv:
        language_runtime.bind_receivers = lambda _classes: None
    runtime = prepare_runtime(level)
    if "--control" in sys.argv:
        leaky = types.ModuleType("leaky")
        vars(leaky)["run_text"] = run_text
        runtime.facades.modules["leaky"] = leaky
    blank = blank_instances(level)
    sys.addaudithook(watch)
    found = HostileWalk(runtime, lambda: hostile_samples(blank), deep=1, call_s=0.1)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        sys.stderr = nowhere
        found.start()
    sys.stdout.write("".join(f"{line}\n" for line in sorted(found.leaks)))
    sys.stdout.write(f"called: {found.calls}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
