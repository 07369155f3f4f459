"""Bounds on the parsed tree: nodes, nesting, copies of finally blocks.

The numbers follow what was measured: each nested ``finally`` doubles the code that
CPython emits (18 of them need 800 MiB), and the compiler, the parser and our own
visitor recurse. Everything here is iterative or runs after the depth is known to be
small.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.limits import BOUNDS
from stoilo.policies.findings import FIRST_PLACE, Lines, make_finding
from stoilo.sandbox.emission import EmittedSize
from stoilo.sandbox.rules import MAX_EMITTED_NODES, MAX_FINALLY_DEPTH, MAX_TREE_DEPTH

if TYPE_CHECKING:
    from stoilo.core.types import Finding

__all__ = ["TREE_LIMITS", "TreeLimits", "find_finally_bombs", "find_oversize"]


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """What one module's tree may be; counts, not bytes."""

    nodes: int = BOUNDS.ast_nodes
    depth: int = BOUNDS.ast_depth  # as the text nests; a chain counts once
    chained_depth: int = MAX_TREE_DEPTH - 2  # as the tree nests: `a + b`, `elif`
    nested_finally: int = MAX_FINALLY_DEPTH
    emitted_nodes: int = MAX_EMITTED_NODES  # with finally bodies copied to each exit


TREE_LIMITS = TreeLimits()

_SINGLETONS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_CHAIN_FIELD: dict[type[ast.AST], str] = {
    ast.BinOp: "left",
    ast.Attribute: "value",
    ast.Subscript: "value",
    ast.Call: "func",
}


def find_oversize(
    tree: ast.Module, lines: Lines, limits: TreeLimits = TREE_LIMITS
) -> list[Finding]:
    """Return a finding when `tree` has too many nodes or nests too deep; iterative."""
    stack: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    nodes = 1
    while stack:
        node, depth, chained = stack.pop()
        if depth > limits.depth or chained > limits.chained_depth:
            return [_too_deep(node, lines, limits)]
        link = _chain_link(node)
        for child in ast.iter_child_nodes(node):
            nodes += 1
            if not isinstance(child, _SINGLETONS):
                step = 0 if child is link else 1
                stack.append((child, depth + step, chained + 1))
        if nodes > limits.nodes:
            message = f"the module has more than {limits.nodes:,} syntax nodes"
            hint = "send data as arguments, not as literals in the source"
            return [make_finding("STO-P025", FIRST_PLACE, message, hint)]
    return []


def _chain_link(node: ast.AST) -> ast.AST | None:
    """Return the child that continues a chain which the text does not nest."""
    field = _CHAIN_FIELD.get(type(node))
    if field is not None:
        child: ast.AST = getattr(node, field)
        return child if isinstance(child, tuple(_CHAIN_FIELD)) else None
    if isinstance(node, ast.If) and len(node.orelse) == 1:
        return node.orelse[0] if isinstance(node.orelse[0], ast.If) else None
    return None


def _too_deep(node: ast.AST, lines: Lines, limits: TreeLimits) -> Finding:
    message = (
        f"the code nests deeper than {limits.depth} levels "
        f"(or a chain has more than {limits.chained_depth} links)"
    )
    hint = "split it into functions, or use sum(), a loop or a dict"
    return make_finding("STO-P026", lines.place(node), message, hint)


def find_finally_bombs(
    tree: ast.Module, lines: Lines, limits: TreeLimits = TREE_LIMITS
) -> list[Finding]:
    """Return findings for try/finally that the compiler would copy too often.

    Precondition: `find_oversize` found nothing, so that recursion is bounded.
    """
    if not any(isinstance(node, ast.Try) and node.finalbody for node in ast.walk(tree)):
        return []
    counter = EmittedSize(limits.nested_finally)
    emitted = counter.measure_all(tree.body)
    findings = [
        make_finding(
            "STO-P027",
            lines.place(node),
            f"try/finally is nested more than {limits.nested_finally} deep",
            "move inner blocks into functions",
        )
        for node in counter.too_nested
    ]
    if emitted > limits.emitted_nodes:
        message = "finally blocks would be copied to each exit too many times"
        hint = "move the finally body into a function, or use fewer exits"
        findings.append(make_finding("STO-P027", FIRST_PLACE, message, hint))
    return findings
