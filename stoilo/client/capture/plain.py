"""Small rewrites of a captured node that do not change what it computes."""

from __future__ import annotations

import ast
import importlib.util

from stoilo.client.capture.library import is_library_module
from stoilo.client.capture.refusals import refuse

_KEPT_ANNOTATIONS = frozenset(
    {"bool", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object"}
    | {"set", "str", "tuple", "ClassVar", "InitVar", "KW_ONLY", "typing", "dataclasses"}
)


def as_def(node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    """Return a lambda as the ``def`` that means the same."""
    if isinstance(node, ast.FunctionDef):
        return node
    return ast.FunctionDef("task", node.args, [ast.Return(node.body)], [])


class _Stripper(ast.NodeTransformer):
    """Remove annotations; in class bodies keep those that dataclasses look at."""

    def __init__(self) -> None:
        self.in_class = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self.in_class = self.in_class, False
        node.returns = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        self.in_class = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.in_class = self.in_class, True
        self.generic_visit(node)
        self.in_class = outer
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self.in_class:
            node.annotation = _plain_annotation(node.annotation)
            return node
        if node.value is None:
            return None
        return ast.Assign([node.target], node.value)


def _plain_annotation(annotation: ast.expr) -> ast.expr:
    """Return the annotation when all its names are harmless, else ``object``."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    texts = [
        node
        for node in ast.walk(annotation)
        if isinstance(node, ast.Constant) and node.value is not None
    ]
    if names <= _KEPT_ANNOTATIONS and not texts:
        return annotation
    return ast.Name("object", ast.Load())


def strip_annotations(node: ast.AST) -> None:
    """Remove what is only for readers and type checkers, in place.

    Blocks that become empty get a ``pass``.
    """
    _Stripper().visit(node)
    for inner in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(inner, field, None)
            if field == "body" and isinstance(block, list) and not block:
                inner.body = [ast.Pass()]  # type: ignore[attr-defined]  # by field


def check_inner_imports(node: ast.AST, where: str) -> None:
    """Refuse ``STO-C013``: an import statement inside names the researcher's module."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom):
            names = ["." * inner.level + (inner.module or "")]
        elif isinstance(inner, ast.Import):
            names = [alias.name for alias in inner.names]
        else:
            continue
        for name in names:
            if name.startswith(".") or _is_own_module(name):
                refuse(
                    "STO-C013",
                    f"{where} imports your own module {name} inside the function",
                    "import it at the top of the file: then its source travels",
                )


def _is_own_module(name: str) -> bool:
    root = name.split(".", maxsplit=1)[0]
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin in {None, "built-in", "frozen"}:
        return False
    return not is_library_module(root) and root != "stoilo"


class _Lifter(ast.NodeTransformer):
    """Turn ``nonlocal x`` of captured cells into ``global x``."""

    def __init__(self, outside: frozenset[tuple[int, int]]) -> None:
        self.outside = outside

    def visit_Nonlocal(self, node: ast.Nonlocal) -> list[ast.stmt]:
        inside: list[str] = []
        lifted: list[str] = []
        for index, name in enumerate(node.names):
            is_lifted = (id(node), index) in self.outside
            (lifted if is_lifted else inside).append(name)
        made: list[ast.stmt] = [ast.Global(lifted)] if lifted else []
        return [*made, *([ast.Nonlocal(inside)] if inside else [])]


def lift_nonlocals(node: ast.AST, outside: frozenset[tuple[int, int]]) -> None:
    """Rewrite, in place, ``nonlocal`` statements whose names became module globals."""
    _Lifter(outside).visit(node)
