"""The shipped levels by name, and which of them a task's arguments need."""

from __future__ import annotations

from stoilo.core.codec.nodes import (
    FORMS,
    ORDERED,
    SHARED,
    Instance,
    Ndarray,
    Node,
    NumpyScalar,
    Tensor,
)
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level, load_levels
from stoilo.core.libraries import library_names


def level_names() -> tuple[str, ...]:
    """Return the names of the shipped levels, narrowest first."""
    return tuple(level.name for level in load_levels())


def load_level(name: str) -> Level:
    """Return the level called `name` (untrusted) or raise ``STO-P002``."""
    for level in load_levels():
        if level.name == name:
            return level
    raise UsageError(
        "STO-P002",
        f"there is no level {name[:40]!r}",
        hint=f"levels here: {', '.join(level_names())}",
    )


def check_level_name(name: str) -> None:
    """Raise ``STO-P002`` unless `name` is empty (choose for me) or a shipped level."""
    if name:
        load_level(name)


# Which library types a task's arguments hold: they too choose the level ---------------


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
            root = one.class_name.partition(".")[0]
            if one.class_name in FORMS - _PLAIN_FORMS or root in library_names():
                found.add(one.class_name)
            stack += [*one.state.values(), one.base]
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            stack += one
    return tuple(sorted(found))
