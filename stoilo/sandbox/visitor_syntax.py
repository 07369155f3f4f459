"""Expressions, statements and patterns: most compile to what CPython would run."""

from __future__ import annotations

import ast
from typing import Any

from stoilo.sandbox import findings as F  # noqa: N812 - a table of rules
from stoilo.sandbox.rules import MAX_FINALLY_DEPTH, NameKind, attribute_kind, mangled
from stoilo.sandbox.visitor_names import NameVisitor, private_call

__all__ = ["SyntaxVisitor"]


class SyntaxVisitor(NameVisitor):
    """Adds what has neither a scope of its own nor an import in it."""

    # Items, iteration, unpacking, calls: what CPython would run

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Allow: items of what a task can reach are data."""
        return self.node_contents_visit(node)

    def guard_iter(self, node: Any) -> ast.AST:  # noqa: ANN401 - For or comprehension
        """Allow iteration; refuse its asynchronous form."""
        if getattr(node, "is_async", 0):
            self._refuse(node.target, F.ASYNC, "async code is not run in a task")
        visited: ast.AST = self.node_contents_visit(node)
        return visited

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Allow on names, items and attributes: in-place semantics are CPython's."""
        return self.node_contents_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Allow; only building a class out of a namespace is refused here already."""
        is_type = isinstance(node.func, ast.Name) and node.func.id == "type"
        if is_type and len(node.args) != 1 and "type" not in self._bound:
            self._refuse(node, F.METACLASS, "type() builds no classes in a task")
        names = {keyword.arg for keyword in node.keywords}
        visited = self.node_contents_visit(node)
        if None in names or (self._has_arrays and "where" in names):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(
                ast.Name("_stoilo_masked", ast.Load()), node.func
            )
        return visited

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Allow; ``__slots__`` in a class body as literal names."""
        if self._scope.kind == "class" and _assigns_slots(node):
            for name in _literal_strings(node.value):
                if attribute_kind(name) is NameKind.REFUSED or name == "__dict__":
                    self._refuse(node, F.NAME, f"the slot name {name!r} is reserved")
            return node
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        """Allow: targets are checked like any assignment."""
        return self.node_contents_visit(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> ast.AST:
        """Allow; bound how deep ``finally`` blocks nest (each doubles the code)."""
        self._finally_depth += bool(node.finalbody)
        if self._finally_depth > MAX_FINALLY_DEPTH:
            self._refuse(node, F.FINALLY, "try/finally is nested too deeply")
        visited = self.node_contents_visit(node)
        self._finally_depth -= bool(node.finalbody)
        return visited

    def visit_TryStar(self, node: Any) -> ast.AST:  # noqa: ANN401 - ast.TryStar, of 3.11
        """Allow: each clause looks at the group before the interpreter splits it."""
        visited = self.visit_Try(node)
        for handler in node.handlers:
            kind = handler.type or ast.Constant(None)
            handler.type = ast.copy_location(private_call("_stoilo_group", kind), kind)
        return visited

    # match

    def visit_Match(self, node: ast.AST) -> ast.AST:
        """Allow; names and attributes in patterns are checked below."""
        return self.node_contents_visit(node)

    visit_match_case = visit_Match
    visit_MatchSingleton = visit_Match
    visit_MatchSequence = visit_Match
    visit_MatchOr = visit_Match

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        """Allow constants and plain dotted names."""
        self._check_pattern_value(node.value)
        return node

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        """Check what the pattern binds."""
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        """Check keys and the name that takes the rest."""
        self.check_name(node, node.rest)
        for key in node.keys:
            self._check_pattern_value(key)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        """Check keyword attributes as attribute access is checked."""
        for name in node.kwd_attrs:
            if (
                attribute_kind(mangled(name, self._scope.class_name))
                is not NameKind.PLAIN
            ):
                message = f"the attribute {name!r} cannot be matched in a task"
                self._refuse(node, F.ATTRIBUTE, message)
        self._check_pattern_value(node.cls)
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        node.kwd_patterns = [self.visit(pattern) for pattern in node.kwd_patterns]
        return node

    def _check_pattern_value(self, node: ast.expr) -> None:
        """Patterns take no calls, so every attribute in them must be plain."""
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                name = mangled(part.attr, self._scope.class_name)
                if attribute_kind(name) is not NameKind.PLAIN:
                    self._refuse_attribute(part)
            elif isinstance(part, ast.Name):
                self.visit_Name(part)


def _assigns_slots(node: ast.Assign) -> bool:
    match node.targets:
        case [ast.Name(id="__slots__")]:
            return bool(_literal_strings(node.value)) or _is_empty(node.value)
    return False


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List) and not value.elts


def _literal_strings(value: ast.expr) -> list[str]:
    """Return the strings of a literal name or sequence of names, [] for all else."""
    elements = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    texts = [
        item.value
        for item in elements
        if isinstance(item, ast.Constant) and type(item.value) is str
    ]
    return texts if len(texts) == len(elements) else []
