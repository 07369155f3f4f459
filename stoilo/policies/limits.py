"""Bounds on the parsed tree: nodes, nesting, copies of finally blocks, constants.

The numbers follow what was measured: each nested ``finally`` doubles the code that
CPython emits (18 of them need 800 MiB), and the compiler, the parser and our own
visitor recurse. Everything here is iterative or runs after the depth is known to be
small.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.limits import BOUNDS
from stoilo.policies.findings import FIRST_PLACE, Lines, make_finding
from stoilo.sandbox.language.rules import (
    MAX_EMITTED_NODES,
    MAX_FINALLY_DEPTH,
    MAX_LITERAL_BITS,
    MAX_LITERAL_LENGTH,
    MAX_TREE_DEPTH,
)
from stoilo.sandbox.language.transformer import EmittedSize

if TYPE_CHECKING:
    from stoilo.core.types import Finding


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
            return [make_finding("STO-P010", FIRST_PLACE, message, hint)]
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
    return make_finding("STO-P022", lines.place(node), message, hint)


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


# Constants that are too large, written out or as an expression of constants -----------
#
# ``9**9**9`` and ``'a' * 10**9`` never finish or never fit; saying so at the gate is
# kinder than a killed task, and spares every tool that folds constants. Sizes are
# estimated from lengths of numbers, the numbers themselves are never computed.


@dataclass(frozen=True, slots=True)
class ConstantLimits:
    """Largest constants."""

    literal_int_bits: int = MAX_LITERAL_BITS
    literal_length: int = MAX_LITERAL_LENGTH
    int_bits: int = 1 << 26  # of an integer computed from constants only
    length: int = 1 << 26  # elements of a sequence repeated by a constant


CONSTANT_LIMITS = ConstantLimits()

_SMALL_BITS = 64  # exponents and counts above this are out of every bound


@dataclass(frozen=True, slots=True)
class _Size:
    """What is known of a constant expression: bits of an int, or a sequence length."""

    bits: int = 0
    value: int | None = None  # exact when small
    length: int | None = None  # set for sequences


def find_large_constants(
    tree: ast.Module, lines: Lines, limits: ConstantLimits = CONSTANT_LIMITS
) -> list[Finding]:
    """Return findings for oversize literals and constant expressions.

    Precondition: the tree's depth is bounded (`stoilo.policies.limits`).
    """
    estimator = _Estimator(limits)
    findings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and _is_large_literal(node.value, limits):
            message = "a literal is too large"
            hint = "send large data as an argument"
            findings.append(make_finding("STO-P010", lines.place(node), message, hint))
        elif isinstance(node, ast.BinOp):
            estimator.measure(node)
    for node in estimator.large:
        message = "this constant expression is too large to compute"
        hint = "compute with smaller numbers, modular pow() or floats"
        findings.append(make_finding("STO-P029", lines.place(node), message, hint))
    return findings


def _is_large_literal(value: object, limits: ConstantLimits) -> bool:
    if isinstance(value, int):
        return value.bit_length() > limits.literal_int_bits
    return isinstance(value, str | bytes) and len(value) > limits.literal_length


class _Estimator:
    """Bottom-up sizes, each expression measured once."""

    def __init__(self, limits: ConstantLimits) -> None:
        self.large: list[ast.BinOp] = []
        self._limits = limits
        self._known: dict[ast.expr, _Size | None] = {}

    def measure(self, node: ast.expr) -> _Size | None:
        """Return the size of `node`, None when it is not a constant expression."""
        if node not in self._known:
            self._known[node] = self._measure(node)
        return self._known[node]

    def _measure(self, node: ast.expr) -> _Size | None:
        if isinstance(node, ast.Constant):
            return _size_of(node.value)
        if isinstance(node, ast.UnaryOp):
            return _negate(node.op, self.measure(node.operand))
        if isinstance(node, ast.List | ast.Tuple):
            return _Size(length=len(node.elts))
        if isinstance(node, ast.BinOp):
            return self._measure_operation(node)
        return None

    def _measure_operation(self, node: ast.BinOp) -> _Size | None:
        left, right = self.measure(node.left), self.measure(node.right)
        if left is None or right is None:
            return None
        size = _combine(node.op, left, right)
        if size is None:
            return None
        if (
            size.bits > self._limits.int_bits
            or (size.length or 0) > self._limits.length
        ):
            self.large.append(node)
            return None  # one finding for the innermost, none for what surrounds it
        return size


def _size_of(value: object) -> _Size | None:
    if isinstance(value, bool | int):
        return _exact(int(value))
    if isinstance(value, str | bytes):
        return _Size(length=len(value))
    return None


def _exact(value: int) -> _Size:
    bits = value.bit_length()
    return _Size(bits, value if bits <= _SMALL_BITS else None)


def _negate(operator: ast.unaryop, size: _Size | None) -> _Size | None:
    if size is None or size.value is None:
        return size
    if isinstance(operator, ast.USub):
        return _exact(-size.value)
    return _exact(~size.value) if isinstance(operator, ast.Invert) else size


def _combine(operator: ast.operator, left: _Size, right: _Size) -> _Size | None:
    """Return an upper estimate of the result's size, None when there is no rule."""
    if left.length is not None or right.length is not None:
        return _combine_sequences(operator, left, right)
    if isinstance(operator, ast.Pow):
        return _power(left, right)
    if isinstance(operator, ast.FloorDiv | ast.Mod | ast.RShift | ast.BitAnd):
        return _Size(max(left.bits, right.bits))
    wide = _widest(operator, left, right)
    return None if wide is None else _small_or(wide, left, right, operator)


def _widest(operator: ast.operator, left: _Size, right: _Size) -> _Size | None:
    if isinstance(operator, ast.LShift):
        count = right.value if right.value is not None else 1 << _SMALL_BITS
        return _Size(left.bits + max(count, 0))
    if isinstance(operator, ast.Mult):
        return _Size(left.bits + right.bits)
    if isinstance(operator, ast.Add | ast.Sub | ast.BitOr | ast.BitXor):
        return _Size(max(left.bits, right.bits) + 1)
    return None


def _small_or(wide: _Size, left: _Size, right: _Size, operator: ast.operator) -> _Size:
    """Return the exact value when it is small, else `wide`."""
    if left.value is None or right.value is None or wide.bits > _SMALL_BITS:
        return wide
    if isinstance(operator, ast.LShift):
        return _exact(left.value << right.value) if right.value >= 0 else wide
    if isinstance(operator, ast.Mult):
        return _exact(left.value * right.value)
    if isinstance(operator, ast.Add):
        return _exact(left.value + right.value)
    if isinstance(operator, ast.Sub):
        return _exact(left.value - right.value)
    return wide


def _power(base: _Size, exponent: _Size) -> _Size:
    if base.value in {0, 1, -1}:
        return _Size(1, None)
    if exponent.value is None:
        return _Size(max(base.bits, 1) << min(exponent.bits, _SMALL_BITS))
    if exponent.value < 0:
        return _Size(_SMALL_BITS)
    if base.value is None:
        return _Size(base.bits * exponent.value)
    if base.bits * exponent.value <= _SMALL_BITS:
        return _exact(base.value**exponent.value)
    return _Size(int(math.log2(abs(base.value)) * exponent.value) + 1)


def _combine_sequences(
    operator: ast.operator, left: _Size, right: _Size
) -> _Size | None:
    if isinstance(operator, ast.Mult):
        sequence, times = (left, right) if left.length is not None else (right, left)
        if times.length is not None:
            return None
        count = times.value if times.value is not None else 1 << min(times.bits, 128)
        return _Size(length=(sequence.length or 0) * max(count, 0))
    if isinstance(operator, ast.Add) and None not in (left.length, right.length):
        return _Size(length=(left.length or 0) + (right.length or 0))
    return None
