"""Who binds which name: just enough scope analysis to leave needless guards out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

__all__ = ["Scope", "arguments_of", "bound_names", "method_owner"]

_Function = ast.FunctionDef | ast.Lambda
_NOT_METHODS = frozenset({"staticmethod", "classmethod"})
_CLASS_FIRST = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})


class Scope(msgspec.Struct):
    """One lexical scope while its body is transformed.

    Attributes:
        kind: ``module``, ``class`` or ``function``.
        class_name: the innermost class around, for name mangling.
        parameters: names that the scope's own arguments bind.
        owner: first parameter of a method when nothing ever rebinds it, else None.
        checked: guarded attribute names used on `owner`; what the prelude must check.
        needs_check: whether `owner` is written to or `checked` is not empty.
        reference: private name of a class that its methods compare types with.
        seen: variable → private name of the first own type that it was seen with.
    """

    kind: str
    class_name: str | None = None
    parameters: frozenset[str] = frozenset()
    owner: str | None = None
    checked: set[str] = msgspec.field(default_factory=set)
    needs_check: bool = False
    reference: str = ""
    seen: dict[str, str] = msgspec.field(default_factory=dict)


def arguments_of(node: _Function) -> list[ast.arg]:
    """Return every parameter of a function or lambda."""
    spec = node.args
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return named + [arg for arg in (spec.vararg, spec.kwarg) if arg is not None]


def _bindings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AsyncFunctionDef(name=name):
            yield name
        case ast.MatchMapping(rest=name) if name:
            yield name
        case (
            ast.MatchAs(name=name)
            | ast.MatchStar(name=name)
            | ast.ExceptHandler(name=name)
        ) if name:
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names


def bound_names(nodes: list[ast.stmt]) -> frozenset[str]:
    """Return every name bound anywhere below `nodes`, nested scopes included.

    Parameters are left out: they bind in a scope of their own.
    """
    return frozenset(
        name for root in nodes for node in ast.walk(root) for name in _bindings(node)
    )


def method_owner(node: ast.FunctionDef) -> str | None:
    """Return the first parameter of a plain method, None if it may be rebound."""
    decorators = {item.id for item in node.decorator_list if isinstance(item, ast.Name)}
    positional = [*node.args.posonlyargs, *node.args.args]
    if not positional or decorators & _NOT_METHODS or node.name in _CLASS_FIRST:
        return None
    owner = positional[0].arg
    return None if owner in bound_names(node.body) else owner
