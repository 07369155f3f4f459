"""What a workunit needs of a host's memory and disk: stored, sent, asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, or_, true

from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import ColumnElement

    from stoilo.server.engines.interface import WorkunitSpec

__all__ = ["HostBounds", "bound_rows", "fits_host"]


@dataclass(frozen=True, slots=True)
class HostBounds:
    """BOINC's ``rsc_memory_bound`` and ``rsc_disk_bound``, bytes; 0: not said."""

    memory_bytes: int = 0
    disk_bytes: int = 0


def bound_rows(
    specs: Iterable[WorkunitSpec], row_of: Mapping[str, int]
) -> list[dict[str, object]]:
    """Return rows for the workunits that say what they need."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "memory_bytes": spec.memory_bound,
            "disk_bytes": spec.disk_bound,
        }
        for spec in specs
        if spec.memory_bound or spec.disk_bound
    ]


def fits_host(*, memory: bool, disk: bool) -> ColumnElement[bool]:
    """Return the condition for workunits, with bounds, that a host says it has room for.

    What a host does not say does not count against it: it refuses by itself.

    Args:
        memory: whether it says how much it has, bytes, parameter :memory.
        disk: the same of what is free on its disk, :disk.
    """
    table = schema.bounds
    too_large = []
    if memory:
        too_large.append(table.c.memory_bytes > bindparam("memory"))
    if disk:
        too_large.append(table.c.disk_bytes > bindparam("disk"))
    return ~or_(*too_large) | table.c.workunit_id.is_(None) if too_large else true()
