"""The shipped levels, by name, and which of them a task's arguments need.

They are part of the verifier release: trusted, and read once a process (the jailed gate
reads them before its jail closes).
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING

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
from stoilo.core.levels import Level, parse_levels

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@functools.cache
def load_levels() -> tuple[Level, ...]:
    """Return every shipped level, narrowest first, or raise ``STO-P001``."""
    return parse_levels(level_files().values())


def load_older_levels(folder: Traversable | None = None) -> tuple[Level, ...]:
    """Return levels of earlier releases whose tasks may still be running.

    ``levels/older/<release>/`` holds all the level files of one earlier release, as they
    were; they stay for as long as admissions live (14 days), unless a change closed a hole.

    Args:
        folder: in place of ``levels/older``.

    Raises:
        InternalError: ``STO-P001``, a set is broken.
    """
    if folder is None:
        folder = resources.files("stoilo.policies") / "levels" / "older"
    if not folder.is_dir():
        return ()
    current = {level.digest for level in load_levels()}
    found: dict[str, Level] = {}
    for release in sorted(folder.iterdir(), key=lambda one: one.name, reverse=True):
        names = [one for one in release.iterdir() if one.name.endswith(".toml")]
        for level in parse_levels(one.read_bytes() for one in names):
            if level.digest not in current:
                found.setdefault(level.digest, level)
    return tuple(found.values())


def level_files() -> dict[str, bytes]:
    """Return the shipped levels' own files by level name, as releases publish them."""
    folder = resources.files("stoilo.policies") / "levels"
    return {
        entry.name.removesuffix(".toml"): entry.read_bytes()
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }


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
            if one.class_name in FORMS - _PLAIN_FORMS:
                found.add(one.class_name)
            stack += [*one.state.values(), one.base]
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            stack += one
    return tuple(sorted(found))
