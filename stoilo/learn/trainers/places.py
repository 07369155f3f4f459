"""Where a trainer's tasks run: what the caller gave, as a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from stoilo.learn.backends.interface import Backend
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.server import ServerBackend

if TYPE_CHECKING:
    from stoilo.client.connection import Connection
    from stoilo.client.options import TaskLimits
    from stoilo.core.types import Redundancy

__all__ = ["Place", "open_backend"]

Place: TypeAlias = "Connection | Backend | None"
"""A connection, a backend, or None for threads of this process."""


def open_backend(
    place: Place,
    redundancy: Redundancy | None = None,
    flavor: str | None = None,
    limits: TaskLimits | None = None,
) -> Backend:
    """Return the backend for `place`; the options hold where it is a connection."""
    if place is None:
        return LocalBackend()
    if hasattr(place, "create_task"):
        connection = cast("Connection", place)
        return ServerBackend(connection, redundancy, limits, flavor=flavor)
    return place
