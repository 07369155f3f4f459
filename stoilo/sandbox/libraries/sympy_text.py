"""Text that sympy would hand to ``eval`` and ``exec``, walked instead.

sympy turns strings into expressions, and expressions into functions (`lambdify`), by way of
Python text. That text is made of what a task wrote (names of symbols are any text), so it is
hostile. Here it is parsed once and becomes nested closures that can look up listed names,
call them, read plain attributes and compute: no more than the task's own source can.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from stoilo.sandbox.language.rules import GuardError, is_plain

_Names = dict[str, Any]
_Step = Callable[[Any], Any]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


class _Scope(dict[str, Any]):
    """Local names over those that the text was given."""

    def __init__(self, local: _Names, names: _Names) -> None:
        super().__init__(local)
        self._names = names

    def __missing__(self, name: str) -> Any:
        return self._names[name]

    def inner(self, local: _Names) -> _Scope:
        return _Scope(local, self)


def evaluate(text: Any, names: _Names, local: _Names | None = None) -> Any:
    """Return the value of the expression `text` (hostile), or of its parsed tree.

    Raises:
        SyntaxError: it is no expression.
        GuardError: ``STO-G014``, it holds more than an expression of listed names.
    """
    tree = ast.parse(text.strip(), mode="eval") if isinstance(text, str) else text
    return _build(tree.body)(_Scope(local or {}, names))


def define(text: str, names: _Names) -> Callable[..., Any]:
    """Return the function that the ``def`` in `text` (hostile) defines over `names`.

    Raises:
        GuardError: ``STO-G014``, it holds more than assignments and one ``return``.
    """
    (function,) = ast.parse(text).body
    if not isinstance(function, ast.FunctionDef):
        raise _refusal(function)
    taken = [one.arg for one in function.args.args]
    steps = [_statement(one) for one in function.body]

    def call(*values: Any, **named: Any) -> Any:
        scope = _Scope(_bind(taken, values, named), names)
        for step in steps:
            found = step(scope)
        return found

    call.__name__ = call.__qualname__ = function.name
    return call


def _refusal(node: ast.AST) -> GuardError:
    return GuardError(
        "STO-G014",
        f"text for sympy cannot hold {type(node).__name__}",
        hint="build the expression of symbols, or write a function",
    )


def _bind(taken: list[str], values: Sequence[Any], named: _Names) -> _Names:
    bound = dict(zip(taken, values, strict=False)) | named
    if len(values) + len(named) != len(taken) or bound.keys() != set(taken):
        raise TypeError(f"the function takes {', '.join(taken) or 'nothing'}")
    return bound


def _statement(node: ast.stmt) -> _Step:
    match node:
        case ast.Return(value=ast.expr() as value):
            return _build(value)
        case ast.Assign(targets=[target], value=value):
            store, found = _target(target), _build(value)
            return lambda scope: store(scope, found(scope))
        case ast.Delete(targets=[ast.Name(id=name)]):
            return lambda scope: scope.pop(name)
    raise _refusal(node)


def _target(node: ast.expr) -> Callable[[_Names, Any], None]:
    """Return what stores a value under a name, or parts of it under a list of names."""
    match node:
        case ast.Name(id=name):
            return lambda scope, value: scope.__setitem__(name, value)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            stores = [_target(one) for one in parts]

            def unpack(scope: _Names, value: Any) -> None:
                for store, part in zip(stores, list(value), strict=True):
                    store(scope, part)

            return unpack
    raise _refusal(node)


def _build(node: ast.AST) -> _Step:
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise _refusal(node)
    return builder(node)


def _constant(node: ast.Constant) -> _Step:
    value = node.value
    return lambda _scope: value


def _name(node: ast.Name) -> _Step:
    name = node.id

    def look_up(scope: _Names) -> Any:
        try:
            return scope[name]
        except KeyError:
            raise NameError(f"name {name!r:.64} is not defined") from None

    return look_up


def _attribute(node: ast.Attribute) -> _Step:
    value, name = _build(node.value), node.attr
    if not is_plain(name):
        raise _refusal(node)

    def read(scope: _Names) -> Any:
        found = value(scope)
        if isinstance(found, ModuleType):  # no module of a library's is in `names`
            raise _refusal(node)
        return getattr(found, name)

    return read


def _call(node: ast.Call) -> _Step:
    function, places = _build(node.func), list(map(_build, node.args))
    named = {one.arg or "": _build(one.value) for one in node.keywords}
    if "" in named or any(isinstance(one, ast.Starred) for one in node.args):
        raise _refusal(node)
    if not named:
        return lambda scope: function(scope)(*[one(scope) for one in places])

    def call(scope: _Names) -> Any:
        values = [one(scope) for one in places]
        return function(scope)(*values, **{k: v(scope) for k, v in named.items()})

    return call


def _binary(node: ast.BinOp) -> _Step:
    # Sums of a thousand terms lean to the left: walked in a loop, not a thousand calls deep
    steps: list[tuple[Callable[[Any, Any], Any], _Step]] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp):
        steps.append((_BINARY[type(first.op)], _build(first.right)))
        first = first.left
    start = _build(first)
    steps.reverse()

    def compute(scope: _Names) -> Any:
        value = start(scope)
        for apply, right in steps:
            value = apply(value, right(scope))
        return value

    return compute


def _unary(node: ast.UnaryOp) -> _Step:
    apply, value = _UNARY[type(node.op)], _build(node.operand)
    return lambda scope: apply(value(scope))


def _boolean(node: ast.BoolOp) -> _Step:
    parts, stops = list(map(_build, node.values)), isinstance(node.op, ast.Or)

    def decide(scope: _Names) -> Any:
        for part in parts:
            value = part(scope)
            if bool(value) is stops:
                break
        return value

    return decide


def _compare(node: ast.Compare) -> _Step:
    first = _build(node.left)
    pairs = [
        (_COMPARE[type(op)], _build(right))
        for op, right in zip(node.ops, node.comparators, strict=True)
    ]

    def compare(scope: _Names) -> Any:
        left = first(scope)
        for number, (apply, right) in enumerate(pairs, 1):
            value, left = apply(left, found := right(scope)), found
            if number < len(pairs) and not value:
                break
        return value

    return compare


def _choice(node: ast.IfExp) -> _Step:
    test, yes, no = _build(node.test), _build(node.body), _build(node.orelse)
    return lambda scope: yes(scope) if test(scope) else no(scope)


def _items(node: ast.Tuple | ast.List | ast.Set) -> _Step:
    kinds: dict[type, Callable[[Iterator[Any]], Any]]
    kinds = {ast.Tuple: tuple, ast.List: list, ast.Set: set}
    kind, parts = kinds[type(node)], list(map(_build, node.elts))
    return lambda scope: kind(one(scope) for one in parts)


def _dict(node: ast.Dict) -> _Step:
    if None in node.keys:
        raise _refusal(node)
    keys = [_build(one) for one in node.keys if one is not None]
    pairs = list(zip(keys, map(_build, node.values), strict=True))
    return lambda scope: {key(scope): value(scope) for key, value in pairs}


def _subscript(node: ast.Subscript) -> _Step:
    value, key = _build(node.value), _build(node.slice)
    return lambda scope: value(scope)[key(scope)]


def _slice(node: ast.Slice) -> _Step:
    parts = [
        _build(one) if one is not None else lambda _scope: None
        for one in (node.lower, node.upper, node.step)
    ]
    return lambda scope: slice(*[one(scope) for one in parts])


def _lambda(node: ast.Lambda) -> _Step:
    taken, body = [one.arg for one in node.args.args], _build(node.body)

    def make(scope: _Scope) -> Callable[..., Any]:
        return lambda *values, **named: body(scope.inner(_bind(taken, values, named)))

    return make


def _generator(node: ast.GeneratorExp | ast.ListComp) -> _Step:
    element = _build(node.elt)
    loops = [
        (_target(one.target), _build(one.iter), list(map(_build, one.ifs)))
        for one in node.generators
    ]

    def walk(scope: _Scope, depth: int) -> Iterator[Any]:
        if depth == len(loops):
            yield element(scope)
            return
        store, items, tests = loops[depth]
        for item in items(scope):
            store(scope, item)
            if all(test(scope) for test in tests):
                yield from walk(scope, depth + 1)

    listed = isinstance(node, ast.ListComp)
    return lambda scope: (list if listed else iter)(walk(scope.inner({}), 0))


_BUILDERS: Mapping[type, Callable[[Any], _Step]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.Tuple: _items,
    ast.List: _items,
    ast.Set: _items,
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Lambda: _lambda,
    ast.GeneratorExp: _generator,
    ast.ListComp: _generator,
}
