"""The first draft of a library's file, from the package that is installed: `describe`.

    python -s -P -m stoilo.flavors.describing.draft <request >draft

Every public name of the asked modules is sorted by what the scan finds in its own source:
open, withheld with the reason, or to be read by a person, with the places. Nothing is
called. A draft opens only what is plainly harmless; whoever keeps the file reads the rest.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import msgspec

from stoilo.core.levels import load_levels
from stoilo.core.libraries import library_names
from stoilo.flavors.describing.check import version_range
from stoilo.flavors.describing.dangers import (
    MODULES,
    NAMES,
    NO_SOURCE,
    Danger,
    Reach,
    full_name,
    kind_of,
    name_kind,
    scan_dangers,
)
from stoilo.flavors.describing.probe import take_output

OPEN, READ = "open", "to be read"
_NATIVE = "native code"
_DOUBTFUL = frozenset({NAMES, NO_SOURCE, MODULES})
"""Kinds that say too little: a person reads the place before a name is withheld."""


class DraftRequest(msgspec.Struct, frozen=True):
    """What to describe."""

    package: str  # import name
    modules: tuple[str, ...] = ()  # dotted; none: the package's public ones


class Sorted(msgspec.Struct, frozen=True):
    """Where one public name belongs."""

    name: str
    state: str  # `OPEN`, `READ`, or the reason to withhold it
    notes: tuple[str, ...] = ()  # what is to be read, with places
    members: tuple[str, ...] = ()  # of a class some of whose methods are not open
    closed: tuple[tuple[str, str], ...] = ()  # those methods, each with the reason
    methods: dict[str, tuple[str, ...]] = {}  # the notes of those to be read


class DraftModule(msgspec.Struct, frozen=True):
    """One module of the draft."""

    dotted: str
    names: tuple[Sorted, ...]


class Draft(msgspec.Struct, frozen=True):
    """What a library's file is written from."""

    name: str
    distribution: str
    version: str
    level: str
    summary: str
    needs: tuple[str, ...]
    modules: tuple[DraftModule, ...]
    failed: tuple[str, ...] = ()  # modules that cannot be imported, with the reason


def make_draft(request: DraftRequest) -> Draft:
    """Import what is asked for and sort its public names; in a child only."""
    name = request.package
    dotted = request.modules or tuple(public_modules(name))
    loaded, failed = _import(dotted)
    values = [value for _, held in loaded for value in vars(held).values()]
    sorter = _Sorter(name, (one for one in values if isinstance(one, type)))
    modules = [DraftModule(one, tuple(sorter.sort(held))) for one, held in loaded]
    distribution = _distribution(name)
    version, summary = "", ""
    if distribution:
        version = metadata.version(distribution)
        summary = str(metadata.metadata(distribution)["Summary"] or "").strip()
    others = {one for one in library_names() if one in sys.modules and one != name}
    return Draft(
        *(name, distribution or name, version, _level(), summary),
        needs=tuple(sorted(others)),
        modules=tuple(modules),
        failed=tuple(failed),
    )


def _import(
    modules: Iterable[str],
) -> tuple[list[tuple[str, ModuleType]], list[str]]:
    loaded, failed = [], []
    for dotted in modules:
        try:
            loaded.append((dotted, importlib.import_module(dotted)))
        except BaseException as error:  # noqa: BLE001 - a library may raise anything
            failed.append(f"{dotted}: {type(error).__name__}: {error}"[:200])
    return loaded, failed


def _distribution(name: str) -> str:
    found = metadata.packages_distributions().get(name, [])
    return min(found) if found else ""


def _level() -> str:
    """Return the narrowest level that has what was imported."""
    wide = {"torch": "tensor", "numpy": "numeric"}
    return next((level for one, level in wide.items() if one in sys.modules), "pure")


def public_modules(name: str) -> Iterator[str]:
    """Yield a package and the modules right below it whose names are public."""
    yield name
    for one in pkgutil.iter_modules(importlib.import_module(name).__path__):
        left_out = one.name.startswith("_") or one.name in {"conftest", "tests"}
        if not left_out:
            yield f"{name}.{one.name}"


def public_names(module: ModuleType) -> list[str]:
    """Return what a module documents: ``__all__``, else its own names without underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted({str(one) for one in listed})
    top = module.__name__.partition(".")[0]
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and str(getattr(value, "__module__", top)).partition(".")[0] == top
    )


class _Sorter:
    """Sorts names; remembers what it said of functions, which classes share."""

    def __init__(self, package: str, classes: Iterable[type]) -> None:
        known = {dotted.partition(".")[0] for dotted in load_levels()[-1].modules}
        self._judged: dict[tuple[FunctionType, ...], tuple[str, tuple[str, ...]]] = {}
        self._reach = Reach({*known, *library_names()} - {package}, classes)

    def sort(self, module: ModuleType) -> Iterator[Sorted]:
        for name in public_names(module):
            if name.startswith("_"):
                continue
            try:
                value = getattr(module, name)
            except Exception as error:  # noqa: BLE001 - a name made when it is asked for
                yield Sorted(name, READ, (f"it cannot be had: {type(error).__name__}",))
            else:
                yield self._sort(name, value)

    def _sort(self, name: str, value: Any) -> Sorted:
        kind = MODULES if isinstance(value, ModuleType) else name_kind(full_name(value))
        if kind:
            return Sorted(name, kind)
        if isinstance(value, type):
            return self._sort_class(name, value)
        return self._sort_value(name, value)

    def _sort_value(self, name: str, value: Any) -> Sorted:
        if _is_native(value):
            return Sorted(name, READ, (_NATIVE,))
        state, notes = self._judge(_functions(value), _inner_functions(value))
        return Sorted(name, state, notes)

    def _judge(
        self, own: list[FunctionType], inner: list[FunctionType]
    ) -> tuple[str, tuple[str, ...]]:
        """Return state and notes for functions; each set of them is judged once."""
        key = (*own, *inner)
        if key not in self._judged:
            found = scan_dangers(self._reach.from_functions(key))
            reason = _reason(scan_dangers(own))
            state = reason or (READ if found else OPEN)
            self._judged[key] = state, () if reason else _notes(found)
        return self._judged[key]

    def _sort_class(self, name: str, cls: type) -> Sorted:
        begun = [_static(cls, one) for one in ("__new__", "__init__")]
        own = [one for part in begun for one in _functions(part)]
        if reason := _reason(scan_dangers(own)):
            return Sorted(name, reason)
        rows = {
            member: self._sort_value(member, _static(cls, member))
            for member in dir(cls)
            if not member.startswith("_") and _functions(_static(cls, member))
        }
        closed = [(one, row.state) for one, row in rows.items() if row.state != OPEN]
        notes = {one: row.notes for one, row in rows.items() if row.state == READ}
        hidden = {one for one, _ in closed}
        public = [one for one in dir(cls) if not one.startswith("_")]
        kept = tuple(one for one in public if one not in hidden) if hidden else ()
        return Sorted(name, OPEN, (), kept, tuple(closed), notes)


def _static(cls: type, name: str) -> Any:
    return inspect.getattr_static(cls, name, None)


def _functions(value: Any) -> list[FunctionType]:
    """Return the Python functions that a name hands out itself, wrapped ones included."""
    if isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    else:
        parts = [value, getattr(value, "__func__", None)]
    found = [one for one in parts if type(one) is FunctionType]
    wrapped = [inspect.unwrap(one) for one in found]
    kept = [one for one in wrapped if type(one) is FunctionType]
    return list(dict.fromkeys([*found, *kept]))


def _inner_functions(value: Any) -> list[FunctionType]:
    """Return the functions that an instance keeps, and its class's methods."""
    if isinstance(value, type | FunctionType | property) or value is None:
        return []
    held = getattr(value, "__dict__", {})
    kind = type(value)
    parts = vars(kind).values() if kind.__module__ != "builtins" else ()
    return [one for part in (*held.values(), *parts) for one in _functions(part)]


def _is_native(value: Any) -> bool:
    """Whether it is a function without Python source that is no array function."""
    kind = type(value)
    cython = kind.__name__ in {"cython_function_or_method", "fused_cython_function"}
    return kind is BuiltinFunctionType or cython


def _reason(dangers: Iterable[Danger]) -> str:
    """Return the kind for which a name is withheld, empty for none."""
    kinds = {kind_of(one) for danger in dangers for one in danger.patterns}
    return min(kinds - _DOUBTFUL, default="")


def _notes(dangers: Iterable[Danger]) -> tuple[str, ...]:
    return tuple(
        f"{danger.name}: {', '.join(danger.patterns)} ({' '.join(danger.places)})"
        for danger in dangers
    )


# The file ------------------------------------------------------------------------------


def render_draft(
    draft: Draft, preload: Iterable[str] = (), failed: Iterable[str] = ()
) -> str:
    """Return the draft as the text of a library's file.

    Args:
        draft: what was sorted.
        preload: modules that first calls need besides its own.
        failed: what went wrong when it was tried.
    """
    loaded = dict.fromkeys([*(one.dotted for one in draft.modules), *preload])
    head = [
        f"# Library {draft.name}: a draft by `stoilo flavor describe`, opened by nobody yet.",
        "# Names after `read` stay closed until a person has read those places, at the end.",
        f"name = {_text(draft.name)}",
        f"distribution = {_text(draft.distribution)}",
        f"versions = {_text(version_range(draft.version))}",
        f"level = {_text(draft.level)}",
        f"summary = {_text(f'{draft.name}: {draft.summary}')}",
        f"needs = {_list(draft.needs)}",
        "",
        *(f"# cannot be imported: {one}" for one in draft.failed),
        *(f"# tried: {' '.join(one.split())}" for one in failed),
        f"preload = {_list(loaded)}",
    ]
    notes = _number_notes(draft)
    body = [_render_module(one, notes) for one in draft.modules]
    tail = [*_render_members(draft, notes), *_render_withheld(draft)]
    places = [f"# {number}: {note}" for note, number in notes.items()]
    lines = [*head, *(line for part in body for line in part), *tail]
    return "\n".join(
        [*lines, *(["", "# Places to read:"] if places else []), *places, ""]
    )


def _number_notes(draft: Draft) -> dict[str, int]:
    """Return each place to read once, with a number that names refer to."""
    found: set[str] = set()
    for _, one in _entries(draft):
        found.update(one.notes, *one.methods.values())
    return {note: number for number, note in enumerate(sorted(found), 1)}


def _render_module(module: DraftModule, notes: dict[str, int]) -> list[str]:
    names = [one.name for one in module.names if one.state == OPEN]
    lines = ["", f"[modules.{_text(module.dotted)}]", f"names = {_list(names)}"]
    closed = {one.name: one.notes for one in module.names if one.state == READ}
    return [*lines, *_render_notes(closed, notes)]


def _render_notes(
    rows: Mapping[str, Iterable[str]], notes: dict[str, int]
) -> Iterator[str]:
    """Yield which names are closed until which places have been read."""
    groups: dict[str, list[str]] = {}
    for name, own in rows.items():
        groups.setdefault(_numbers([notes[note] for note in own]), []).append(name)
    for numbers, names in groups.items():
        head = f"# read {numbers}: "
        yield from textwrap.wrap(
            ", ".join(names), _LINE, initial_indent=head, subsequent_indent="#   "
        )


def _numbers(numbers: list[int]) -> str:
    """Return the numbers of places; of very many the first ones and how many follow."""
    shown = " ".join(map(str, numbers[:_SHOWN]))
    more = len(numbers) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _render_members(draft: Draft, notes: dict[str, int]) -> list[str]:
    lines = ["", "[members]"]
    for dotted, one in _entries(draft):
        if one.closed:
            lines.append(f"{_text(dotted)} = {_list(one.members)}")
            lines += _render_notes(one.methods, notes)
    return lines if len(lines) > len(("", "head")) else []


def _render_withheld(draft: Draft) -> list[str]:
    reasons: dict[str, str] = {}
    for dotted, one in _entries(draft):
        if one.state not in {OPEN, READ}:
            reasons[dotted] = one.state
        for member, reason in one.closed:
            if reason != READ:
                reasons[f"{dotted}.{member}"] = reason
    rows = [f"{_text(name)} = {_text(why)}" for name, why in sorted(reasons.items())]
    return ["", "[withheld]", *rows] if rows else []


def _entries(draft: Draft) -> Iterator[tuple[str, Sorted]]:
    for module in draft.modules:
        for one in module.names:
            yield f"{module.dotted}.{one.name}", one


def _text(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _list(items: Iterable[str]) -> str:
    """Return a TOML array, broken into lines of the house's length."""
    texts = [*map(_text, items)]
    line = f"[{', '.join(texts)}]"
    if len(line) <= _LINE:
        return line
    lines, row = [], ""
    for text in texts:
        if len(row) + len(text) > _LINE:
            lines.append(row)
            row = ""
        row += f" {text}," if row else f"  {text},"
    return "\n".join(["[", *lines, row, "]"])


_LINE = 92
_SHOWN = 16


def main() -> None:
    """Answer the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=DraftRequest)
    answers = take_output()
    warnings.simplefilter("ignore")
    answer = msgspec.json.encode(make_draft(request))
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


if __name__ == "__main__":
    main()
