"""Annotations that libraries read (dataclasses, NamedTuple), made harmless.

Function annotations are erased: nothing needs them. In class bodies an annotation stays
an expression under the ordinary rules, unless it holds text, which libraries would
evaluate, or is lazy (``from __future__ import annotations``), when it may not resolve.
Then only the marker that changes what a dataclass does is kept.
"""

from __future__ import annotations

import ast

__all__ = ["class_annotation"]

_MARKERS = frozenset({"ClassVar", "InitVar", "KW_ONLY"})


def class_annotation(annotation: ast.expr, *, lazy: bool) -> ast.expr:
    """Return what stands for `annotation` in a class body."""
    if not lazy and not _holds_text(annotation):
        return annotation
    wrapper = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if _marker(wrapper) in _MARKERS:
        return wrapper
    return ast.copy_location(ast.Constant(None), annotation)


def _holds_text(annotation: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        for node in ast.walk(annotation)
    )


def _marker(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
