"""``mylib.helper(x)``: names reached through the researcher's own modules."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable

from stoilo.client.capture.library import is_library_module
from stoilo.client.capture.outside import Outside
from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.scopes import External, externals_of
from stoilo.client.capture.targets import Target

Resolve = Callable[[Target, External, Outside, str], None]
"""Binds one use of an outside name, as `Graph.resolve_name` does."""


class _Replacer(ast.NodeTransformer):
    """Put a plain name where an attribute of an own module stands."""

    def __init__(self, roots: dict[int, tuple[External, types.ModuleType]]) -> None:
        self.roots = roots
        self.made: list[tuple[ast.Name, str, types.ModuleType, External]] = []

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        root = self.roots.get(id(chain[-1].value))
        if root is None:
            return self.generic_visit(node)
        external, module = root
        links = list(reversed(chain))
        for index, link in enumerate(links):
            value = getattr(module, link.attr, None)
            if isinstance(value, types.ModuleType) and not is_library_module(
                value.__name__
            ):
                module = value
                continue
            if link is not node and isinstance(links[index + 1].value, ast.Attribute):
                links[index + 1].value = self._name(link, module, external)
                return node
            return self._name(link, module, external)
        return node

    def _name(
        self, link: ast.Attribute, module: types.ModuleType, external: External
    ) -> ast.Name:
        name = ast.Name(link.attr, link.ctx)
        self.made.append((name, link.attr, module, external))
        return name


def replace_own_modules(
    resolve: Resolve, unit: Target, node: ast.AST, outside: Outside, place: str
) -> frozenset[int]:
    """Rewrite ``module.name`` in place, own modules only; returns the handled nodes."""
    roots: dict[int, tuple[External, types.ModuleType]] = {}
    for external in externals_of(node):
        value = _value(outside, external)
        if isinstance(value, types.ModuleType) and not is_library_module(
            value.__name__
        ):
            roots[id(external.node)] = (external, value)
    if not roots:
        return frozenset()
    replacer = _Replacer(roots)
    replacer.visit(node)
    for name, attribute, module, external in replacer.made:
        _bind_attribute(resolve, unit, (name, attribute, module, external), place)
    return frozenset(id(item[0]) for item in replacer.made)


def _bind_attribute(
    resolve: Resolve,
    unit: Target,
    made: tuple[ast.Name, str, types.ModuleType, External],
    place: str,
) -> None:
    name, attribute, module, root = made
    dotted = f"{module.__name__}.{attribute}"
    if not hasattr(module, attribute):
        refuse(
            "STO-C016",
            f"`{dotted}` (used in {place}) does not exist",
            "check the name, or reload the module",
        )
    if not isinstance(name.ctx, ast.Load):
        refuse(
            "STO-C013",
            f"`{dotted}` (used in {place}) is assigned from outside its module",
            "write a function in that module which assigns it",
        )
    external = External(
        attribute,
        name,
        lambda new: setattr(name, "id", new),
        declared_global=True,
        stored=False,
        deferred=root.deferred,
    )
    resolve(unit, external, Outside(vars(module)), place)


def _value(outside: Outside, external: External) -> object:
    try:
        return outside.value_of(external)
    except ValueError:  # an empty cell is refused where it is resolved
        return None
