"""The child that tries a library: imports it, prepares its level, walks it, scans it.

    python -s -P -m stoilo.flavors.describing.probe <question >answer

It runs in the environment whose packages are asked about, calls library functions with
nonsense and may die of them: before each step it notes where it is in a file that the
parent holds. While it walks, nothing can be opened, started or imported: what a library
asks for then, it would ask for in a volunteer's closed jail.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import operator
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType

import msgspec

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level, ModuleRule, load_levels
from stoilo.core.libraries import (
    Library,
    add_libraries,
    level_order,
    library_names,
)
from stoilo.flavors.describing.dangers import Danger, Reach, scan_dangers
from stoilo.flavors.describing.samples import level_samples, library_samples
from stoilo.flavors.describing.source_scan import handed_functions
from stoilo.flavors.describing.walk import Walk
from stoilo.sandbox.language.hardening import classes_with_bases
from stoilo.sandbox.language.rules import find_class
from stoilo.sandbox.language.runtime import prepare_runtime

PLACE_BYTES = 512
_STACK_BYTES = 64 << 20
_DEEP = 20_000
_OUTSIDE = (
    *("open", "os.", "shutil.", "socket.", "subprocess.", "ctypes.dlopen", "mmap."),
    *("sqlite3.", "urllib.", "tempfile.", "glob.", "pty.", "fcntl.", "resource."),
)
"""How the audit events begin that lead outside the process."""


class Asked(msgspec.Struct, frozen=True, order=True):
    """Something that the jail would have refused, and where it was asked for first."""

    event: str  # of Python's audit hooks
    what: str
    place: str


class Progress(msgspec.Struct, frozen=True):
    """How far a walk with a budget came; another process goes on from there."""

    done: int = 0  # names
    careful: bool = True  # arguments of another kind were not tried yet
    calls: int = 0
    asked: tuple[Asked, ...] = ()
    leaks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()  # ``module:name`` of those that came by


class Question(msgspec.Struct, frozen=True):
    """What is to be tried."""

    library: Library
    place: int  # descriptor of the file for notes
    deep: int = 2  # how many calls deep to walk
    call_s: float = 1.0  # after how many seconds a call is stopped
    skipped: tuple[str, ...] = ()  # what the walk leaves out
    budget_s: float | None = None  # after how many seconds the walk ends; None: never
    before: Progress = Progress()
    scans: bool = True


class Answer(msgspec.Struct, frozen=True):
    """What was found; empty parts where an earlier one has faults."""

    version: str = ""  # of the installed distribution, empty for none
    faults: tuple[str, ...] = ()  # what the file says and is not so
    asked: tuple[Asked, ...] = ()
    leaks: tuple[str, ...] = ()
    dangers: tuple[Danger, ...] = ()
    calls: int = 0
    complete: bool = True  # nothing was left out for want of time


class Watch:
    """Python's audit hook: refuses what leads outside while a library is walked."""

    def __init__(self, notes: int, before: tuple[Asked, ...] = ()) -> None:
        self.active = False
        self.place = ""
        self._notes = notes
        self.asked = {(one.event, one.what): one.place for one in before}

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an event and refuse it."""
        if not self.active or not event.startswith(("import", *_OUTSIDE)):
            return
        what = str(arguments[0])[:200] if arguments else ""
        if event == "import":
            if what in sys.modules:
                return
            self.asked.setdefault((event, what), self.place)
            raise ModuleNotFoundError(f"No module named {what!r}", name=what)
        self.asked.setdefault((event, what), self.place)
        raise PermissionError(event)

    def note(self, place: str) -> None:
        """Write down where the walk is, for whoever finds this process dead."""
        self.place = place
        data = place.encode("utf-8", "replace")[:PLACE_BYTES].ljust(PLACE_BYTES)
        os.pwrite(self._notes, data, 0)

    def save(self, walk: Walk) -> None:
        """Write down all that was found, for a process that goes on after this one."""
        found = Progress(
            *(walk.done, walk.careful, walk.calls),
            *(self.rows(), tuple(sorted(walk.leaks))),
            tuple(f"{one.__module__}:{one.__qualname__}" for one in walk.classes),
        )
        os.pwrite(self._notes, msgspec.json.encode(found) + b"\n", PLACE_BYTES)

    def rows(self) -> tuple[Asked, ...]:
        """Return what was asked for."""
        return tuple(Asked(*key, place) for key, place in sorted(self.asked.items()))


def _is_installed(module: str) -> bool:
    top = module.partition(".")[0]
    for name in dict.fromkeys((top, module)):
        try:
            if importlib.util.find_spec(name) is None:
                return False
        except Exception:  # noqa: BLE001 - a parent that cannot be imported
            return False
    return True


def try_library(question: Question) -> Answer:
    """Return what is found of a library, up to the first part that has faults."""
    watch = Watch(question.place, question.before.asked)
    library = question.library
    sys.addaudithook(watch)
    version = _installed(library.distribution)
    faults: list[str] = []
    # A module that a façade makes whole need not be one; preparing says what it lacks.
    plain = (name for name, rule in library.modules.items() if not rule.facade)
    for name in (*library.preload, *plain):
        watch.note(f"import {name}")
        faults += _import_fault(name)
    watch.note("the file's names")
    faults += [] if faults else find_faults(library)
    if faults or not version:
        return Answer(version, tuple(dict.fromkeys(faults)))
    watch.note("preparing the level")
    try:
        walk = _prepare_walk(question, watch)
    except Exception as error:  # noqa: BLE001 - what it closes, it may need itself
        text = f"{library.name} cannot be prepared: {type(error).__name__}: {error}"
        return Answer(version, (text[:300],))
    watch.active = True
    try:
        walk.start(within=library.name)
    finally:
        watch.active = False
    watch.note("the scan")
    return Answer(
        version,
        asked=tuple(
            one
            for one in watch.rows()
            if one.event != "import" or _is_installed(one.what)
        ),
        leaks=tuple(sorted(walk.leaks)),
        dangers=tuple(scan_library(library, walk)) if question.scans else (),
        calls=walk.calls,
        complete=not walk.is_late,
    )


def _prepare_walk(question: Question, watch: Watch) -> Walk:
    library, before = question.library, question.before
    level = load_levels()[level_order(library)]
    runtime = prepare_runtime(add_libraries(level, (library,)))
    samples = level_samples(level.name)
    honest = library_samples((library.name, *library.needs))
    samples(), honest()  # they import what they need
    budget_s = math.inf if question.budget_s is None else question.budget_s
    return Walk(
        runtime,
        samples,
        leaks=set(before.leaks),
        calls=before.calls,
        deep=question.deep,
        call_s=question.call_s,
        skipped=frozenset(question.skipped),
        note=watch.note,
        classes=dict.fromkeys(_known_classes(before.classes)),
        honest=honest,
        until=time.monotonic() + budget_s,
        done=before.done,
        save=watch.save,
    )


def _known_classes(names: tuple[str, ...]) -> Iterator[type]:
    for name in names:
        module, _, path = name.partition(":")
        with contextlib.suppress(AttributeError, KeyError):  # made while it ran
            found = operator.attrgetter(path)(sys.modules[module])
            if isinstance(found, type):
                yield found


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _import_fault(name: str) -> list[str]:
    try:
        importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - a library may raise anything
        return [f"{name} cannot be imported: {type(error).__name__}: {error}"[:300]]
    return []


# What a file says and is not so --------------------------------------------------------


def find_faults(library: Library) -> list[str]:
    """Return what `library` names and is not there; its modules are imported."""
    level = add_libraries(load_levels()[level_order(library)], (library,))
    found = []
    for dotted, rule in library.modules.items():
        found += _module_faults(dotted, rule, level)
    for dotted, names in library.members.items():
        found += _class_faults(dotted, names)
    for dotted in (*library.overrides, *library.writable, *library.travelling_types):
        found += _class_faults(dotted.rstrip("+"), ())
    return found + _withheld_faults(library)


def _module_faults(dotted: str, rule: ModuleRule, level: Level) -> list[str]:
    replaced: object = {}
    if rule.facade:
        made = importlib.import_module(rule.facade).FACADES[dotted]
        replaced = made(level) if callable(made) else made
    own = replaced if isinstance(replaced, dict) else {}
    found = []
    for name in rule.names:
        value = own[name] if name in own else _read(sys.modules[dotted], name)
        if value is _ABSENT:
            found.append(f"{dotted}.{name} does not exist")
        elif isinstance(value, ModuleType):
            found.append(f"{dotted}.{name} is a module")
    return found


_ABSENT = object()


def _read(owner: object, name: str) -> object:
    try:
        return getattr(owner, name, _ABSENT)
    except Exception:  # noqa: BLE001 - a module that makes its names when asked
        return _ABSENT


def _class_faults(dotted: str, names: tuple[str, ...]) -> list[str]:
    try:
        cls = find_class(dotted)
    except (ImportError, InternalError):
        return [f"{dotted} is no class"]
    return [
        f"{dotted}.{name} does not exist" for name in names if not hasattr(cls, name)
    ]


def _withheld_faults(library: Library) -> list[str]:
    """Return what is said to be withheld and is handed out."""
    given = {
        f"{dotted}.{name}"
        for dotted, rule in library.modules.items()
        for name in rule.names
        if not rule.facade
    }
    given |= {
        f"{dotted}.{name}"
        for dotted, names in library.members.items()
        for name in names
    }
    return [
        f"{one} is withheld and handed out" for one in library.withheld if one in given
    ]


_OURS = ("stoilo", "typing_extensions")

# The scan ------------------------------------------------------------------------------


def scan_library(library: Library, walk: Walk) -> list[Danger]:
    """Return the dangers in all that the library's façades, and what they gave, lead to."""
    facades = [
        facade
        for dotted, facade in walk.runtime.facades.modules.items()
        if dotted.partition(".")[0] == library.name
    ]
    seen = [
        cls for cls in walk.classes if cls.__module__.partition(".")[0] == library.name
    ]
    level = load_levels()[level_order(library)]
    known = {dotted.partition(".")[0] for dotted in level.modules}
    known.update(
        set(library.needs).intersection(library_names())
    )  # described elsewhere
    classes = [*classes_with_bases(facades), *seen]
    reach = Reach({*known, *_OURS} - {library.name}, classes)
    functions = reach.from_functions(handed_functions(facades, classes))
    return scan_dangers(filter(reach.is_own, functions))


def take_output() -> int:
    """Return a descriptor for the answer, which nothing that a library prints reaches."""
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return answers


def main() -> None:
    """Answer the question on standard input."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    answers = take_output()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    warnings.showwarning = lambda *_: None  # the jail's opens no source either
    sys.setrecursionlimit(_DEEP)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    answer = msgspec.json.encode(try_library(question))
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


if __name__ == "__main__":
    main()
