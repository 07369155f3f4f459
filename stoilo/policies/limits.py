"""Copies of finally blocks, and constants that are too large.

The numbers follow what was measured: each nested ``finally`` doubles the code that
CPython emits (18 of them need 800 MiB). How many nodes a tree may have, and how deep it may
nest, the language layer says (`stoilo.sandbox.language.transformer`).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.policies.findings import FIRST_PLACE, Lines, make_finding
from stoilo.sandbox.language.rules import MAX_EMITTED_NODES, MAX_FINALLY_DEPTH
from stoilo.sandbox.language.transformer import EmittedSize, is_large_literal

if TYPE_CHECKING:
    from stoilo.core.types import Finding


def find_finally_bombs(tree: ast.Module, lines: Lines) -> list[Finding]:
    """Return findings for try/finally that the compiler would copy too often.

    Precondition: the tree's depth is bounded (`transformer.find_oversize`).
    """
    if not any(isinstance(node, ast.Try) and node.finalbody for node in ast.walk(tree)):
        return []
    counter = EmittedSize(MAX_FINALLY_DEPTH)
    emitted = counter.measure_all(tree.body)
    findings = [
        make_finding(
            "STO-P027",
            lines.place(node),
            f"try/finally is nested more than {MAX_FINALLY_DEPTH} deep",
            "move inner blocks into functions",
        )
        for node in counter.too_nested
    ]
    if emitted > MAX_EMITTED_NODES:
        message = "finally blocks would be copied to each exit too many times"
        hint = "move the finally body into a function, or use fewer exits"
        findings.append(make_finding("STO-P027", FIRST_PLACE, message, hint))
    return findings


# Constants that are too large, written out or as an expression of constants -----------
#
# ``9**9**9`` and ``'a' * 10**9`` never finish or never fit; saying so at the gate is
# kinder than a killed task, and spares every tool that folds constants. Sizes are
# estimated from lengths of numbers, the numbers themselves are never computed.


MAX_INT_BITS = 1 << 26  # of an integer computed from constants only
MAX_LENGTH = 1 << 26  # elements of a sequence repeated by a constant
_SMALL_BITS = 64  # exponents and counts above this are out of every bound


@dataclass(frozen=True, slots=True)
class _Size:
    """What is known of a constant expression: bits of an int, or a sequence length."""

    bits: int = 0
    value: int | None = None  # exact when small
    length: int | None = None  # set for sequences


def find_large_constants(
    tree: ast.Module, lines: Lines, int_bits: int = MAX_INT_BITS
) -> list[Finding]:
    """Return findings for oversize literals and constant expressions.

    Precondition: as above.
    """
    estimator = _Estimator(int_bits)
    findings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and is_large_literal(node.value):
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


class _Estimator:
    """Bottom-up sizes, each expression measured once."""

    def __init__(self, int_bits: int) -> None:
        self.large: list[ast.BinOp] = []
        self._int_bits = int_bits
        self._known: dict[ast.expr, _Size | None] = {}

    def measure(self, node: ast.expr) -> _Size | None:
        """Return the size of `node`, None when it is not a constant expression."""
        if node not in self._known:
            self._known[node] = self._measure(node)
        return self._known[node]

    def _measure(self, node: ast.expr) -> _Size | None:
        match node:
            case ast.Constant(value=int() as value):
                return _exact(value)
            case ast.Constant(value=str() | bytes() as value):
                return _Size(length=len(value))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return _Size(length=len(items))
            case ast.UnaryOp(op=sign, operand=operand):
                return _apply_sign(sign, self.measure(operand))
            case ast.BinOp():
                return self._measure_operation(node)
        return None

    def _measure_operation(self, node: ast.BinOp) -> _Size | None:
        left, right = self.measure(node.left), self.measure(node.right)
        if left is None or right is None:
            return None
        size = _combine(type(node.op), left, right)
        if size is None:
            return None
        if size.bits > self._int_bits or (size.length or 0) > MAX_LENGTH:
            self.large.append(node)
            return None  # one finding for the innermost, none for what surrounds it
        return size


def _exact(value: int) -> _Size:
    bits = value.bit_length()
    return _Size(bits, int(value) if bits <= _SMALL_BITS else None)


def _apply_sign(sign: ast.unaryop, size: _Size | None) -> _Size | None:
    if size is None or size.value is None or isinstance(sign, ast.UAdd | ast.Not):
        return size
    return _exact(-size.value if isinstance(sign, ast.USub) else ~size.value)


def _times(size: _Size) -> int:
    """Return how often something is repeated or shifted, beyond every bound if unknown."""
    return 1 << _SMALL_BITS if size.value is None else max(size.value, 0)


def _power_bits(base: _Size, exponent: _Size) -> int:
    if base.value in {0, 1, -1}:
        return 1
    if exponent.value is not None and exponent.value < 0:
        return _SMALL_BITS
    if base.value is None or exponent.value is None:
        return max(base.bits, 1) * _times(exponent)
    return int(math.log2(abs(base.value)) * exponent.value) + 1


def _wider(left: _Size, right: _Size) -> int:
    return max(left.bits, right.bits) + 1


_Operator = type[ast.operator]
# How many bits a result has at most, and how it is computed while it is small
_BITS: dict[_Operator, Callable[[_Size, _Size], int]] = {
    ast.Pow: _power_bits,
    ast.LShift: lambda left, right: left.bits + _times(right),
    ast.Mult: lambda left, right: left.bits + right.bits,
    **dict.fromkeys((ast.Add, ast.Sub, ast.BitOr, ast.BitXor), _wider),
    **dict.fromkeys((ast.FloorDiv, ast.Mod, ast.RShift, ast.BitAnd), _wider),
}
_COMPUTE: dict[_Operator, Callable[[int, int], int]] = {
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}


def _combine(kind: _Operator, left: _Size, right: _Size) -> _Size | None:
    """Return an upper estimate of the result's size, None when there is no rule."""
    if left.length is not None or right.length is not None:
        return _combine_sequences(kind, left, right)
    if kind not in _BITS:
        return None
    bits = _BITS[kind](left, right)
    # A negative exponent gives no int, a negative shift an error
    sound = kind not in {ast.Pow, ast.LShift} or (right.value or 0) >= 0
    small = kind in _COMPUTE and bits <= _SMALL_BITS and sound
    if small and left.value is not None and right.value is not None:
        return _exact(_COMPUTE[kind](left.value, right.value))
    return _Size(bits)


def _combine_sequences(kind: _Operator, left: _Size, right: _Size) -> _Size | None:
    if kind is ast.Mult and None in (left.length, right.length):
        sequence, times = (left, right) if left.length is not None else (right, left)
        return _Size(length=(sequence.length or 0) * _times(times))
    if kind is ast.Add and None not in (left.length, right.length):
        return _Size(length=(left.length or 0) + (right.length or 0))
    return None
