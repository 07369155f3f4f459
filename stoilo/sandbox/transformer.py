"""From source to code that can only reach what the level hands out.

A subclass of RestrictedPython's transformer: unknown syntax stays refused, and every
binding form and attribute is checked. Stock guards that a static check makes needless are
not emitted: plain names, items, iteration and unpacking compile to what CPython would run.
What is left, and where:

    a.__class__           → _stoilo_type_of(a)
    a._x, a.format …      → _stoilo_getattr(a, "_x"), or direct where the type is known
    a.x = v               → _stoilo_write(a, "x").x = v, or direct on a checked ``self``
    f(a, where=m)         → _stoilo_masked(f, a, where=m): no uninitialised memory
    import m, from m …    → m = _stoilo_import("m", …): façades, never sys.modules

A method that uses ``self._x`` or assigns ``self.x`` starts with one test of ``type(self)``;
inside it both forms are direct.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from types import CodeType
from typing import Any, TypeVar

from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS
from stoilo.core.types import Finding
from stoilo.sandbox import findings as F  # noqa: N812 - a table of rules
from stoilo.sandbox.rules import LANGUAGE_DIGEST, MAX_TREE_DEPTH, TASK_FILENAME
from stoilo.sandbox.scopes import bound_names
from stoilo.sandbox.visitor_definitions import TaskTransformer

__all__ = ["LANGUAGE_DIGEST", "check_tree", "compile_source", "restrict_tree"]

_N = TypeVar("_N", bound=ast.AST)


def _copy_tree(node: _N) -> _N:
    fields: dict[str, Any] = {}
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            fields[name] = _copy_tree(value)
        elif isinstance(value, list):
            fields[name] = [
                _copy_tree(item) if isinstance(item, ast.AST) else item
                for item in value
            ]
        else:
            fields[name] = value
    return ast.copy_location(type(node)(**fields), node)


def _tree_bounds(tree: ast.AST) -> Finding | None:
    """Refuse a tree too large or too deep to visit; never recurses."""
    count, layer = 0, list[ast.AST]([tree])
    for _ in range(MAX_TREE_DEPTH):
        count += len(layer)
        if not layer or count > BOUNDS.ast_nodes:
            break
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
    if count > BOUNDS.ast_nodes:
        return F.finding_at(tree, F.TOO_LARGE, f"over {BOUNDS.ast_nodes} syntax nodes")
    if layer:
        return F.finding_at(layer[0], F.TOO_LARGE, "nested too deeply")
    return None


def restrict_tree(tree: ast.Module, level: Level) -> list[Finding]:
    """Rewrite `tree` in place for `level`; return what refuses it (then do not use it)."""
    if (too_large := _tree_bounds(tree)) is not None:
        return [too_large]
    transformer = TaskTransformer(level, _module_bindings(tree))
    try:
        transformer.visit(tree)
    except RecursionError:
        return [F.finding_at(tree, F.TOO_LARGE, "nested too deeply")]
    ast.fix_missing_locations(tree)
    return sorted(transformer.findings, key=lambda item: (item.line, item.column))


def _module_bindings(tree: ast.Module) -> frozenset[str]:
    parameters = (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    return bound_names(tree.body) | frozenset(parameters)


def check_tree(tree: ast.Module, level: Level) -> list[Finding]:
    """Return every reason why `tree` (untrusted) may not run at `level`; [] if none.

    Pure: `tree` is not changed and nothing of it is executed or compiled.
    """
    if (too_large := _tree_bounds(tree)) is not None:
        return [too_large]
    return restrict_tree(_copy_tree(tree), level)


def compile_source(source: str, level: Level) -> CodeType:
    """Return code for `source` (untrusted) that is safe to load at `level`.

    Raises:
        PolicyRefusal: with the first finding's code, place and hint.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, TASK_FILENAME)
            if refused := restrict_tree(tree, level):
                raise _refusal(refused)
            return compile(tree, TASK_FILENAME, "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        raise PolicyRefusal(
            F.SYNTAX.code,
            f"line {error.lineno or 1}: not valid Python: {error.msg}",
            hint=F.SYNTAX.hint,
        ) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise PolicyRefusal(
            F.TOO_LARGE.code,
            f"the source cannot be parsed: {type(error).__name__}",
            hint=F.TOO_LARGE.hint,
        ) from None


def _refusal(refused: Iterable[Finding]) -> PolicyRefusal:
    first = next(iter(refused))
    message = f"line {first.line}, column {first.column}: {first.message}"
    return PolicyRefusal(first.code, message, hint=first.hint)
