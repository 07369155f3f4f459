"""Read the source of library functions for what trusts its arguments.

A walk over objects sees what a library hands out for honest arguments. What it would do
with hostile ones stands in its source: code that asks an object for its class, takes a
name as text, formats a text that it was given, or compiles. `scan_functions` finds every
such place in functions, their inner functions and the helpers they name in their package;
somebody then reads each. Nothing is run.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import linecache
import operator
import string
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

from stoilo.core.levels import Level
from stoilo.sandbox.language.hardening import classes_with_bases

__all__ = [
    "Finding",
    "digest_tree",
    "find_definition",
    "find_patterns",
    "follow",
    "functions_in",
    "handed_functions",
    "inside",
    "reachable_functions",
    "scan_functions",
    "scan_level",
    "settle",
]

_CALLS = frozenset(
    {"__import__", "compile", "delattr", "eval", "exec", "getattr", "globals"}
    | {"locals", "setattr", "vars"}
)
_ATTRIBUTES = frozenset(
    {"__builtins__", "__class__", "__closure__", "__code__", "__dict__", "__globals__"}
    | {"_getframe", "_getframemodulename", "f_back", "f_globals", "f_locals"}
    | {"__getattribute__", "__mro__", "__subclasses__", "gi_frame", "tb_frame"}
)
_FORMATS = frozenset({"format", "format_map", "vformat"})
_SETTLED = frozenset({"self.__class__", "type(self)"})
_DIGEST_LENGTH = 8
_PARTS = ("__func__", "__wrapped__", "fget", "fset", "fdel", "func", "wrapped")


class Finding(msgspec.Struct, frozen=True, order=True):
    """A function with places that somebody has to read.

    Attributes:
        name: module and qualified name.
        patterns: what was found in it, sorted, each once.
        digest: of its text without comments, layout and docstrings; another when a new
            version of the library changed it.
    """

    name: str
    patterns: tuple[str, ...]
    digest: str


def scan_level(level: Level, modules: Iterable[ModuleType]) -> list[Finding]:
    """Return what has to be read before `level` can hand out its libraries.

    Args:
        level: the level.
        modules: its façades, prepared. Our own code is left out: it was written for this.
    """
    given = {name for names in level.overrides.values() for name in names}
    private = frozenset(name for name in given if name.startswith("_"))
    facades = list(modules)
    functions = reachable_functions(facades, classes_with_bases(facades))
    found = (settle(finding, private) for finding in scan_functions(functions))
    return [
        finding
        for finding in found
        if finding.patterns and not finding.name.startswith("stoilo.")
    ]


# What is reachable ---------------------------------------------------------------------


def reachable_functions(
    modules: Iterable[ModuleType], classes: Iterable[type]
) -> list[FunctionType]:
    """Return the Python functions behind façades and classes, and what they lead to.

    Args:
        modules: façades; their functions, bound methods, and instances' classes count.
        classes: all members of these count, private ones too: the library calls them.
            So do those of their metaclasses.
    """
    return follow(
        handed_functions(modules, classes),
        lambda one: functions_in((*_helpers(one), *inside(one))),
    )


def handed_functions(
    modules: Iterable[ModuleType], classes: Iterable[type]
) -> Iterator[FunctionType]:
    """Yield the functions that façades and classes have themselves."""
    values = [value for facade in modules for value in vars(facade).values()]
    kinds = {
        id(cls): cls for value in (*values, *classes) for cls in type(value).__mro__
    }
    kinds |= {id(cls): cls for cls in classes}
    members = [member for cls in kinds.values() for member in vars(cls).values()]
    yield from functions_in((*values, *members))


def follow(
    functions: Iterable[FunctionType],
    lead: Callable[[FunctionType], Iterable[FunctionType]],
    key: Callable[[FunctionType], object] = operator.attrgetter("__code__"),
) -> list[FunctionType]:
    """Return `functions` and all that they lead to, each `key` once."""
    found: dict[object, FunctionType] = {}
    todo = list(functions)
    while todo:
        function = todo.pop()
        if key(function) not in found:
            found[key(function)] = function
            todo.extend(lead(function))
    return list(found.values())


def functions_in(values: Iterable[object]) -> Iterator[FunctionType]:
    """Yield the functions that values are, or have in a descriptor's part."""
    for value in values:
        yield from _functions_in(value)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """Yield the functions that `value` is or has in a descriptor's part."""
    for part in (value, *(_part(value, name) for name in _PARTS)):
        function = part.__func__ if type(part) is MethodType else part
        if type(function) is FunctionType:
            yield function


def _part(value: object, name: str) -> object:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def inside(function: FunctionType) -> Iterator[object]:
    """Yield what decorators put inside a function."""
    yield function.__dict__.get("__wrapped__")
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _helpers(function: FunctionType) -> Iterator[object]:
    """Yield the functions and classes' members of its package that it names."""
    package = function.__module__.partition(".")[0]
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if (
            type(value) is FunctionType
            and value.__module__.partition(".")[0] == package
        ):
            yield value
        elif isinstance(value, type) and value.__module__ == function.__module__:
            yield from vars(value).values()


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, inner))


# What is found -------------------------------------------------------------------------


def scan_functions(functions: Iterable[FunctionType]) -> list[Finding]:
    """Return the functions in which a pattern occurs, by name, each once."""
    found = (_scan(function) for function in functions)
    return sorted({finding for finding in found if finding is not None})


def _scan(function: FunctionType) -> Finding | None:
    name = f"{function.__module__}.{function.__qualname__}"
    path, tree = find_definition(function)
    if tree is None:
        made = path.startswith(
            "<"
        )  # by a library or us, from text that is found itself
        return None if made else Finding(name, ("no source",), "")
    patterns = tuple(sorted(set(find_patterns(tree))))
    return Finding(name, patterns, digest_tree(tree)) if patterns else None


def find_definition(function: FunctionType) -> tuple[str, ast.AST | None]:
    """Return the file of a function and its definition there, None without source."""
    code = function.__code__
    path = _source_path(code)
    return path, _definitions(path).get((code.co_name, code.co_firstlineno))


def _source_path(code: CodeType) -> str:
    """Return the file of a function; CPython freezes some modules that have one."""
    path = code.co_filename
    if path.startswith("<frozen "):
        module = sys.modules.get(path[len("<frozen ") : -1])
        path = getattr(module, "__file__", None) or path.strip("<>")
    return path


def settle(finding: Finding, given: frozenset[str]) -> Finding:
    """Return `finding` without what the language layer settles for every method.

    A receiver is a real instance (`stoilo.sandbox.language.hardening`), so its class is
    no metaclass; and its private methods are the library's own, but for the names that a
    level gives to own classes (`stoilo.sandbox.language.ownership`).

    Args:
        finding: what a function holds.
        given: the private names that the level gives.
    """
    left = tuple(item for item in finding.patterns if not _is_settled(item, given))
    return msgspec.structs.replace(finding, patterns=left)


def _is_settled(pattern: str, given: frozenset[str]) -> bool:
    private = pattern.startswith("self._") and pattern.endswith("()")
    return pattern in _SETTLED or (private and pattern[5:-2] not in given)


@functools.cache
def _definitions(path: str) -> dict[tuple[str, int], ast.AST]:
    """Return the functions of a file by name and first line (a decorator's, if any)."""
    found: dict[tuple[str, int], ast.AST] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            found[node.name, first] = node
        elif isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), node)
    return found


def digest_tree(tree: ast.AST) -> str:
    """Return a short digest of code without comments, layout and docstrings."""
    text = ast.unparse(_without_docstrings(tree))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and _is_text(body[0]):
            del body[0]
    return tree


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def find_patterns(tree: ast.AST) -> Iterator[str]:
    """Yield each place of `tree` that trusts an argument, in a normal form."""
    receiver = _receiver(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node, receiver)
        elif isinstance(node, ast.Call):
            yield from _call(node, receiver)


def _receiver(tree: ast.AST) -> str:
    arguments = getattr(tree, "args", None)
    if isinstance(arguments, ast.arguments):
        for argument in (*arguments.posonlyargs, *arguments.args):
            return argument.arg
    return ""


def _whose(node: ast.expr, receiver: str) -> str:
    own = isinstance(node, ast.Name) and node.id == receiver
    return "self" if own and receiver == "self" else "x"


def _attribute(node: ast.Attribute, receiver: str) -> Iterator[str]:
    if node.attr in _ATTRIBUTES:
        yield f"{_whose(node.value, receiver)}.{node.attr}"
    if node.attr == "modules" and ast.unparse(node.value) in {"sys", "_sys"}:
        yield "sys.modules"


def _call(node: ast.Call, receiver: str) -> Iterator[str]:
    called = node.func
    if isinstance(called, ast.Name):
        if called.id in _CALLS and not _reads_plain_name(node):
            yield f"{called.id}()"
        if called.id == "type" and node.args:
            many = len(node.args) > 1
            yield "type(,,)" if many else f"type({_whose(node.args[0], receiver)})"
    elif isinstance(called, ast.Attribute):
        if called.attr in _FORMATS and not _is_fixed_text(called.value):
            yield f".{called.attr}()"
        private = called.attr.startswith("_") and not called.attr.startswith("__")
        if private and _whose(called.value, receiver) == "self":
            yield f"self.{called.attr}()"


def _reads_plain_name(node: ast.Call) -> bool:
    """Whether it is ``getattr(x, "name")`` or its like: the same as ``x.name``."""
    name = node.args[1] if len(node.args) > 1 else None
    return (
        ast.unparse(node.func) in {"delattr", "getattr", "setattr"}
        and isinstance(name, ast.Constant)
        and isinstance(name.value, str)
        and name.value not in _ATTRIBUTES
    )


def _is_fixed_text(node: ast.expr) -> bool:
    """Whether a format is a literal that reads no attribute and no item."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    fields = [field or "" for _, field, *_ in string.Formatter().parse(node.value)]
    return not any("." in field or "[" in field for field in fields)
