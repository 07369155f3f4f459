"""From source to code that can only reach what the level hands out.

A subclass of RestrictedPython's transformer: unknown syntax stays refused, and every
binding form and attribute is checked. Stock guards that a static check makes needless are
not emitted: plain names, items, iteration and unpacking compile to what CPython would run.
What is left, and where:

    a.__class__           → _stoilo_type_of(a)
    a._x, a.format …      → _stoilo_getattr(a, "_x"), or direct where the type is known
    a.x = v               → _stoilo_write(a, "x").x = v, or direct where the type is known
    f(where=m), f(**k)    → _stoilo_masked(f, …) where arrays are: no uninitialised memory
    import m, from m …    → m = _stoilo_import("m", …): façades, never sys.modules
    def __getattr__ …     → @_stoilo_hook("__getattr__"), outermost: asked for no reserved name
    except* T             → except* _stoilo_group(T): no group with a ``split`` of its own

A method that uses ``self._x`` or assigns ``self.x`` starts with one test of ``type(self)``;
inside it both forms are direct.

Why each guard that is left out is not needed. *In reach* means: what a task can hold. By
induction over the steps of a run it is data, the task's own objects, and what a façade
hands out or one of these returns.

- *Plain attribute names* (`rules.attribute_kind`). No object in reach gives more than that
  under a plain name: the walks over every façade list what does
  (``tests/sandbox/test_facades.py``, ``test_reachability.py``), and such names are guarded.
- *Items, iteration, unpacking, ``with``, operators.* They call special methods, found on
  the type and never by a name of the task's choice. On library types they yield data in
  reach; on own types they run the task's own code, which has been transformed.
- *Augmented assignment.* Read, operator, write: as these.
- *Calls.* The callee is in reach, so its result is. Only masks of array functions, where
  the result depends on free memory, go through `masked`.
- *Names.* Reserved names can neither be spelled nor bound (`rules.is_variable_name`, asked
  in every binding form), so a private function is what the loader put there. A name that is
  neither bound nor a builtin of the level is a NameError, as in CPython.
- *``self`` after the test.* `scopes.method_owner`: the parameter is bound nowhere else in
  the function, nested scopes included, so that it holds the tested object throughout.
  ``type(self)`` is exact and no class of the task can lie about it. A tested class is own
  and none of its library bases keeps a guarded name (`ownership.kept_names`): such a name
  on its instances is the task's own. Assignment to an own object changes the task only.
- *Assignment where the type is known.* The variable is read twice with nothing between that
  could bind it; an instance of an own class without a library's guarded names is one that
  the guard lets through under any name but a special method's, which always goes there.
- *Annotations of functions.* Erased: nobody reads them.
- *Hooks and descriptors of own classes.* What direct access calls is the task's own code, as a
  property is. A library that asks by name gets no answer under a name that no source spells,
  and none under one that a library base uses (`hooks`).

``tests/sandbox/elision`` grows programs over all façades and sees every object that they
reach; its controls take one guard away each and see the leak.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, TypeVar

from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import Level
from stoilo.core.types import BOUNDS, Finding
from stoilo.sandbox.language import rules as F  # noqa: N812 - a table of rules
from stoilo.sandbox.language.names import bound_names
from stoilo.sandbox.language.rules import (
    LANGUAGE_DIGEST,
    MAX_EMITTED_NODES,
    MAX_FINALLY_DEPTH,
    MAX_LITERAL_BITS,
    MAX_LITERAL_LENGTH,
    MAX_TREE_DEPTH,
    TASK_FILENAME,
)
from stoilo.sandbox.language.statements import TaskTransformer

__all__ = [
    "LANGUAGE_DIGEST",
    "EmittedSize",
    "check_tree",
    "compile_source",
    "find_bombs",
    "find_oversize",
    "restrict_tree",
]


# What would cost too much before anything runs: large, deep or multiplying sources
#
# The gate says the same earlier; this is for a source that no gate has seen. What only costs
# while it runs (huge integers, regular expressions, long loops) ends at the run's own
# limits. The compiler copies each ``finally`` body to every exit: eighteen nested ones in
# 1.5 kB of source make it use 800 MiB.


_SINGLETONS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class EmittedSize:
    """Counts nodes as the compiler emits them: a finally body once for each exit.

    Precondition: the tree's depth is bounded.

    Attributes:
        too_nested: ``try`` statements below `nested_finally` others; not looked into.
    """

    def __init__(self, nested_finally: int) -> None:
        self.too_nested: list[ast.AST] = []
        self._most_nested = nested_finally
        self._nested = 0

    def measure_all(
        self, nodes: Sequence[ast.stmt], pending: tuple[int, ...] = ()
    ) -> int:
        """Return the emitted size of statements inside `pending` finally bodies."""
        return sum(self._measure(node, pending) for node in nodes)

    def _measure(self, node: ast.AST, pending: tuple[int, ...]) -> int:
        if isinstance(node, ast.Try | ast.TryStar) and node.finalbody:
            return self._measure_finally(node, pending)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending = ()
        size = 1
        if isinstance(node, ast.Return | ast.Break | ast.Continue):
            size += sum(pending)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _SINGLETONS):
                size += self._measure(child, pending)
        return size

    def _measure_finally(
        self, node: ast.Try | ast.TryStar, pending: tuple[int, ...]
    ) -> int:
        if self._nested >= self._most_nested:
            self.too_nested.append(node)
            return 1
        self._nested += 1
        last = self.measure_all(node.finalbody, pending)
        inner = (*pending, last)
        size = 2 * last + self.measure_all(node.body, inner)
        size += sum(self._measure(handler, inner) for handler in node.handlers)
        size += self.measure_all(node.orelse, inner)
        self._nested -= 1
        return size


_CHAIN_FIELD: dict[type[ast.AST], str] = {
    ast.BinOp: "left",
    ast.Attribute: "value",
    ast.Subscript: "value",
    ast.Call: "func",
}


def find_oversize(tree: ast.AST, most: int = BOUNDS.ast_nodes) -> Finding | None:
    """Return what refuses a tree too large or too deep to visit; never recurses.

    A chain (``a + b + …``, ``elif``) counts once as the text nests, and link by link as the
    tree does.
    """
    stack: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    nodes = 1
    while stack:
        node, nested, depth = stack.pop()
        if nested > BOUNDS.ast_depth or depth > MAX_TREE_DEPTH - 2:
            message = (
                f"the code nests deeper than {BOUNDS.ast_depth} levels "
                f"(or a chain has more than {MAX_TREE_DEPTH - 2} links)"
            )
            return F.finding_at(node, F.TOO_LARGE, message)
        link = _chain_link(node)
        for child in ast.iter_child_nodes(node):
            nodes += 1
            if not isinstance(child, _SINGLETONS):
                stack.append((child, nested + (child is not link), depth + 1))
        if nodes > most:
            message = f"the module has more than {most:,} syntax nodes"
            return F.finding_at(tree, F.LITERAL, message)
    return None


def _chain_link(node: ast.AST) -> ast.AST | None:
    """Return the child that continues a chain which the text does not nest."""
    field = _CHAIN_FIELD.get(type(node))
    if field is not None:
        child: ast.AST = getattr(node, field)
        return child if isinstance(child, tuple(_CHAIN_FIELD)) else None
    if isinstance(node, ast.If) and len(node.orelse) == 1:
        return node.orelse[0] if isinstance(node.orelse[0], ast.If) else None
    return None


def find_bombs(tree: ast.Module) -> list[Finding]:
    """Return what makes `tree`, which is not oversize, too expensive to compile."""
    found = [
        F.finding_at(node, F.LITERAL, "a literal is too large")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and is_large_literal(node.value)
    ]
    if EmittedSize(MAX_FINALLY_DEPTH).measure_all(tree.body) > MAX_EMITTED_NODES:
        message = "finally blocks would be copied to each exit too many times"
        found.append(F.finding_at(tree, F.FINALLY, message))
    return found


def is_large_literal(value: object) -> bool:
    """Whether a number, text or bytes is more than a source may hold."""
    if isinstance(value, int):
        return value.bit_length() > MAX_LITERAL_BITS
    return isinstance(value, str | bytes) and len(value) > MAX_LITERAL_LENGTH


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


def restrict_tree(tree: ast.Module, level: Level) -> list[Finding]:
    """Rewrite `tree` in place for `level`; return what refuses it (then do not use it)."""
    if (too_large := find_oversize(tree)) is not None:
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
    if (too_large := find_oversize(tree)) is not None:
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
            _check_size(source)
            tree = ast.parse(source, TASK_FILENAME)
            if refused := restrict_tree(tree, level) or find_bombs(tree):
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


def _check_size(source: str) -> None:
    if len(source) > BOUNDS.source_bytes:
        message = f"the source has over {BOUNDS.source_bytes} characters"
        raise PolicyRefusal(F.TOO_LARGE.code, message, hint=F.TOO_LARGE.hint)


def _refusal(refused: Iterable[Finding]) -> PolicyRefusal:
    first = next(iter(refused))
    message = f"line {first.line}, column {first.column}: {first.message}"
    return PolicyRefusal(first.code, message, hint=first.hint)
