"""The shipped levels, by name. Their files lie beside this module, in `levels/`.

They are part of the verifier release: trusted, and read once a process (the jailed gate
reads them before its jail closes).
"""

from __future__ import annotations

import functools
from importlib import resources

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.levels import Level, parse_level

__all__ = ["check_level_name", "level_names", "load_level", "load_levels"]


@functools.cache
def load_levels() -> tuple[Level, ...]:
    """Return every shipped level, narrowest first, or raise ``STO-P001``."""
    folder = resources.files("stoilo.policies") / "levels"
    levels = [
        parse_level(entry.read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    ]
    levels.sort(key=lambda level: level.order)
    if len({level.order for level in levels}) != len(levels):
        raise InternalError("STO-P001", "two level files have the same order")
    return tuple(levels)


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
