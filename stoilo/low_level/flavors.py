"""Flavors: which libraries the volunteers' runtime holds (thesis §7.3)."""

from __future__ import annotations

__all__ = ["DEFAULT", "names"]

DEFAULT = ""
"""Let the server choose the smallest flavor that holds the task's imports."""


def names() -> tuple[str, ...]:
    """Return the names of the flavors that this version ships."""
    from stoilo.flavors import manifest  # noqa: PLC0415 - data, read when asked for

    return tuple(flavor.name for flavor in manifest.shipped_flavors())
