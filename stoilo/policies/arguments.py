"""Which library types a task's arguments hold: they too choose the level."""

from __future__ import annotations

from stoilo.core.codec.forms import FORMS, ORDERED, SHARED
from stoilo.core.codec.nodes import Instance, Ndarray, Node, NumpyScalar, Tensor

__all__ = ["find_argument_types"]

_TYPES: dict[type, str] = {
    Ndarray: "numpy.ndarray",
    NumpyScalar: "numpy.generic",
    Tensor: "torch.Tensor",
}
_PLAIN_FORMS = frozenset({ORDERED, SHARED})


def find_argument_types(node: Node) -> tuple[str, ...]:
    """Return the dotted library types in a decoded argument node, sorted; iterative.

    Args:
        node: from `stoilo.core.codec.skeleton.decode`, and therefore bounded.
    """
    found: set[str] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        name = _TYPES.get(type(one))
        if name is not None:
            found.add(name)
        elif isinstance(one, Instance):
            if one.class_name in FORMS - _PLAIN_FORMS:
                found.add(one.class_name)
            stack += [*one.state.values(), one.base]
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            stack += one
    return tuple(sorted(found))
