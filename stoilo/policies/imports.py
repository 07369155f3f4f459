"""Imports against a level: each dotted name, each from-name, each module attribute.

A level hands out façades that hold listed names only, so an unlisted name would fail in
the jail anyway; here it fails earlier, with a place and the level that has it. The tree
is hostile and never executed; relative and star imports are refused whatever they name.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.libraries import load_library
from stoilo.policies.findings import FINDINGS_SHOWN, Lines, make_finding
from stoilo.sandbox.language.names import bindings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stoilo.core.levels import Level
    from stoilo.core.types import Finding


@dataclass(frozen=True, slots=True)
class Need:
    """One library thing that a source asks for."""

    module: str  # full dotted module name
    name: str  # what it wants of that module; empty for the module itself
    node: ast.AST  # where
    form: str  # `module`, `name` (from-import), `attribute`, `relative`, `star`


def find_needs(tree: ast.Module) -> list[Need]:
    """Return everything the tree imports, and attributes read off imported modules."""
    needs: list[Need] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            needs += [Need(alias.name, "", alias, "module") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            needs += _from_needs(node)
    return [*needs, *_attribute_needs(tree)]


def find_import_problems(
    needs: Sequence[Need],  # from `find_needs`
    lines: Lines,  # the text, for places
    level: Level,  # the level that is asked
    wider: Sequence[Level] = (),  # higher levels, to say which one would admit it
) -> list[Finding]:
    """Return findings for what `level` does not hand out."""
    refused = (need for need in needs if not _admits(level, need))
    return [
        _refuse(need, lines, level, wider)
        for need in itertools.islice(refused, FINDINGS_SHOWN + 1)
    ]


def _from_needs(node: ast.ImportFrom) -> list[Need]:
    if node.level:
        return [Need("." * node.level + (node.module or ""), "", node, "relative")]
    module = node.module or ""
    return [
        Need(module, alias.name, alias, "star" if alias.name == "*" else "name")
        for alias in node.names
    ]


def _admits(level: Level, need: Need) -> bool:
    if need.form in {"relative", "star"}:
        return False
    if need.module == "__future__":
        return need.name == "annotations"
    if not need.name:
        return need.module in level.modules
    rule = level.modules.get(need.module)
    if rule is None and need.form == "attribute":
        return True  # an attribute of a value, or the import itself is refused
    if rule is not None and need.name in rule.names:
        return True
    dotted = f"{need.module}.{need.name}"
    return any(f"{name}.".startswith(f"{dotted}.") for name in level.modules)


def _refuse(need: Need, lines: Lines, level: Level, wider: Sequence[Level]) -> Finding:
    place = lines.place(need.node)
    if need.form == "relative":
        message, hint = "relative imports have no meaning in a task", "inline the code"
        return make_finding("STO-P042", place, message, hint)
    if need.form == "star":
        message = f"`from {need.module[:60]} import *` hides what is used"
        return make_finding("STO-P042", place, message, "name what you need")
    if need.module == "__future__":
        message = f"`from __future__ import {need.name[:60]}` changes the language"
        return make_finding("STO-P042", place, message, "only annotations is allowed")
    opening = next((other.name for other in wider if _admits(other, need)), "")
    known = need.name and need.module in level.modules
    what = ".".join(filter(None, (need.module, need.name))) if known else need.module
    state = "handed out" if known else "open"
    message = (
        f"{'' if known else 'module '}{what[:100]} is not {state} at level {level.name}"
    )
    if opening:
        hint = f"level {opening} has it: ask for level={opening}"
    else:
        hint = _advice(need, what, level)
    return make_finding("STO-P040", place, message, hint)


def _advice(need: Need, what: str, level: Level) -> str:
    """Return what to do about something that no level hands out."""
    root = need.module.partition(".")[0]
    library = load_library(root)
    if library is None and need.module in level.modules:
        return (
            f"use another name of {need.module[:60]}: `stoilo policy show` lists them"
        )
    if library is None:
        return advise(root)
    for dotted in (what, need.module):
        if why := library.withheld.get(dotted):
            return f"{dotted[:80]} is withheld: {why}"
    if library.modules.keys().isdisjoint(level.modules):
        return f"no flavor of this project holds {root}: ask its operator for one"
    return f"`stoilo policy show {root}` lists what the library {root} hands out"


def advise(root: str) -> str:
    """Return what to do without the package `root` (untrusted), which nothing describes."""
    if root in _INSTEAD:
        return _INSTEAD[root]
    if root in sys.stdlib_module_names:
        return "no level has it: `stoilo policy show` lists the open modules"
    return (
        f"no file policies/libraries/{root[:60]}.toml describes it: an operator drafts one "
        f"with `stoilo flavor describe {root[:60]}`; meanwhile compute with what "
        "`stoilo policy show` lists, or do this part at home and pass its result"
    )


_NO_COMMAND_LINE = (
    "a task has no command line: name as the entry a function that takes the parameters "
    "as its one dict, and keep the parser in another file"
)
_PICKLES = "pickles run code: json, numpy.save and torch.save write to io.BytesIO()"
_PICTURES = "a task has no screen: return the numbers, and draw them at home"
_NETWORK = "a task has no network: fetch at home, and pass the data as an argument"
_FILES = "a task has no files and no processes: pass the data as an argument"
_ALONE = "a task runs alone in one thread: split the work with conn.map(...) instead"
# What to do without a module that scripts often import
_INSTEAD = {
    **dict.fromkeys(("argparse", "click", "fire", "optparse"), _NO_COMMAND_LINE),
    **dict.fromkeys(("pickle", "cloudpickle", "dill", "joblib"), _PICKLES),
    **dict.fromkeys(("matplotlib", "seaborn", "plotly"), _PICTURES),
    **dict.fromkeys(("requests", "urllib", "http", "socket", "httpx"), _NETWORK),
    **dict.fromkeys(("os", "shutil", "tempfile", "glob", "subprocess"), _FILES),
    **dict.fromkeys(("threading", "multiprocessing", "concurrent", "asyncio"), _ALONE),
}


def _attribute_needs(tree: ast.Module) -> Iterator[Need]:
    """Yield attribute reads on names that only ever mean one imported module.

    A name that anything else in the source also binds is left to the run-time guards.
    """
    modules = _module_names(tree)
    if not modules:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            if dotted and dotted[0] in modules:
                path = [modules[dotted[0]], *dotted[1:]]
                yield Need(".".join(path[:-1]), path[-1], node, "attribute")


def _module_names(tree: ast.Module) -> dict[str, str]:
    """Return local name → dotted module for names bound by one kind of import only.

    ``from`` imports count for described libraries, whose files say what is withheld and why.
    """
    meanings: dict[str, str] = {}
    bound: Counter[str] = Counter(_bound_names(tree))
    imported: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".", 1)[0]
                target = alias.name if alias.asname else name
                if meanings.setdefault(name, target) == target:
                    imported[name] += 1
                bound[name] += 1
        elif isinstance(node, ast.ImportFrom):
            described = load_library((node.module or "").partition(".")[0])
            for alias in node.names:
                # A module or not: where it is none, no level says so
                name = alias.asname or alias.name
                target = f"{node.module}.{alias.name}"
                if described and meanings.setdefault(name, target) == target:
                    imported[name] += 1
                bound[name] += 1
    return {
        name: module
        for name, module in meanings.items()
        if bound[name] == imported[name]
    }


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that something other than an import binds, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif not isinstance(node, ast.alias | ast.Global | ast.Nonlocal):
            yield from bindings(node)


def _dotted(node: ast.Attribute) -> tuple[str, ...]:
    """Return the path of a plain ``a.b.c`` read, else nothing."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return ()
    return (inner.id, *reversed(parts))
