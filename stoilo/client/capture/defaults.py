"""Default arguments: the values they have now, not the expressions that made them."""

from __future__ import annotations

import ast
import types

from stoilo.client.capture.graph import Graph
from stoilo.client.capture.targets import FunctionTarget, reference


def is_current_literal(source: ast.expr | None, value: object) -> bool:
    """Whether `source` is a literal that still gives `value`, types included."""
    if source is None:
        return False
    try:
        literal = ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return type(literal) is type(value) and repr(literal) == repr(value)


def rewrite_defaults(
    graph: Graph, target: FunctionTarget, func: types.FunctionType
) -> None:
    """Replace the defaults of the target's node by the function's present ones.

    Small constants become literals, functions and classes their names. A larger value
    travels as data: the parameter gets a sentinel that the first lines replace.
    """
    node = target.node
    assert node is not None  # noqa: S101 - set by the caller
    writer = _Writer(graph, target)
    named = [*node.args.posonlyargs, *node.args.args]
    values = list(func.__defaults__ or ())
    sources: list[ast.expr | None] = list(node.args.defaults)
    sources = sources if len(sources) == len(values) else [None] * len(values)
    tail = named[len(named) - len(values) :] if values else []
    node.args.defaults = [
        writer.write(argument.arg, source, value)
        for argument, source, value in zip(tail, sources, values, strict=True)
    ]
    keywords = func.__kwdefaults__ or {}
    node.args.kw_defaults = [
        writer.write(argument.arg, source, keywords[argument.arg])
        if argument.arg in keywords
        else None
        for argument, source in zip(
            node.args.kwonlyargs, node.args.kw_defaults, strict=True
        )
    ]
    at = 1 if ast.get_docstring(node, clean=False) is not None else 0
    node.body[at:at] = writer.prologue


class _Writer:
    def __init__(self, graph: Graph, target: FunctionTarget) -> None:
        self.graph = graph
        self.target = target
        self.prologue: list[ast.stmt] = []

    def write(self, name: str, source: ast.expr | None, value: object) -> ast.expr:
        if source is not None and is_current_literal(source, value):
            return source
        where = f"default of `{name}` in {self.target.where}"
        expression = self.graph.expressions.build(value, self.target, where)
        return expression or self._bind_later(name, value, where)

    def _bind_later(self, name: str, value: object, where: str) -> ast.expr:
        data = self.graph.place(value, f"{name}_default", where)
        test = ast.Compare(
            ast.Name(name, ast.Load()),
            [ast.Is()],
            [reference(self.graph.sentinel, self.target, now=False)],
        )
        taken = reference(data, self.target, now=False)
        assign = ast.Assign([ast.Name(name, ast.Store())], taken)
        self.prologue.append(ast.If(test, [assign], []))
        return reference(self.graph.sentinel, self.target, now=True)
