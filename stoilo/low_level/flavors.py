"""Flavors: which libraries the volunteers' runtime holds (thesis §7.3)."""

from __future__ import annotations

DEFAULT = ""  # Let the server choose the smallest flavor that holds the task's imports


def names() -> tuple[str, ...]:
    """Return the names of the flavors that this version ships."""
    from stoilo.flavors.manifest import shipped_flavors  # noqa: PLC0415 - read late

    return tuple(flavor.name for flavor in shipped_flavors())
