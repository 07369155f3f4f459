"""How much code a tree becomes: the compiler copies each ``finally`` body to every exit.

Eighteen nested ``finally`` in 1.5 kB of source make it use 800 MiB.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

__all__ = ["EmittedSize"]

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
