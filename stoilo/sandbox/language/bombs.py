"""What would cost too much before anything runs: large, deep or multiplying sources.

The gate says the same earlier and in more words (`stoilo.policies.limits`); this is for a
source that no gate has seen. What only costs while it runs (huge integers, regular
expressions, long loops) ends at the run's own limits.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from stoilo.core.finding import Finding
from stoilo.core.limits import BOUNDS
from stoilo.sandbox.language import rules as F  # noqa: N812 - a table of rules
from stoilo.sandbox.language.rules import (
    MAX_EMITTED_NODES,
    MAX_FINALLY_DEPTH,
    MAX_LITERAL_BITS,
    MAX_LITERAL_LENGTH,
    MAX_TREE_DEPTH,
)

__all__ = ["EmittedSize", "find_bombs", "find_oversize"]


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


def find_oversize(tree: ast.AST) -> Finding | None:
    """Return what refuses a tree too large or too deep to visit; never recurses."""
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


def find_bombs(tree: ast.Module) -> list[Finding]:
    """Return what makes `tree`, which is not oversize, too expensive to compile."""
    found = [
        F.finding_at(node, F.LITERAL, "a literal is too large")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and _is_large(node.value)
    ]
    if EmittedSize(MAX_FINALLY_DEPTH).measure_all(tree.body) > MAX_EMITTED_NODES:
        message = "finally blocks would be copied to each exit too many times"
        found.append(F.finding_at(tree, F.FINALLY, message))
    return found


def _is_large(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() > MAX_LITERAL_BITS
    return isinstance(value, str | bytes) and len(value) > MAX_LITERAL_LENGTH
