"""The levels as apps of the project, in their order (design §4)."""

from __future__ import annotations

from typing import Final

__all__ = ["LEVELS", "app_id", "levels_up_to"]

LEVELS: Final = ("pure", "numeric", "tensor", "gpu")


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels up to and with one; an unknown one is the lowest."""
    place = LEVELS.index(level) if level in LEVELS else 0
    return LEVELS[: place + 1]


def app_id(level: str) -> int:
    """Return BOINC's number of the level's app."""
    return LEVELS.index(level) + 1
