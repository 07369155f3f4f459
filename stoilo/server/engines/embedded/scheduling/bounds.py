"""What a workunit needs of a host's memory and disk: stored, sent, asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import exists, or_, true

from stoilo.server.bulk import select_in
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.executor.messages import HostInfo
    from stoilo.server.engines.interface import WorkunitSpec

__all__ = ["NOT_SAID", "HostBounds", "bound_rows", "fits_host", "load_bounds"]


@dataclass(frozen=True, slots=True)
class HostBounds:
    """BOINC's ``rsc_memory_bound`` and ``rsc_disk_bound``, bytes; 0: not said."""

    memory_bytes: int = 0
    disk_bytes: int = 0


NOT_SAID = HostBounds()


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


def load_bounds(
    connection: Connection, workunits: Sequence[int]
) -> dict[int, HostBounds]:
    """Return what some workunits need; those that say nothing are left out."""
    table = schema.bounds
    columns = [table.c.workunit_id, table.c.memory_bytes, table.c.disk_bytes]
    rows = select_in(connection, columns, table.c.workunit_id, workunits)
    return {row: HostBounds(memory, disk) for row, memory, disk in rows}


def fits_host(host: HostInfo) -> ColumnElement[bool]:
    """Return the condition for workunits that a host has room for, as it says.

    What a host does not say (0) does not count against it: it refuses by itself.
    """
    table = schema.bounds
    too_large = [
        column > int(most)
        for column, most in (
            (table.c.memory_bytes, host.memory_bytes),
            (table.c.disk_bytes, host.disk_free_bytes),
        )
        if most > 0
    ]
    if not too_large:
        return true()
    return ~exists().where(
        table.c.workunit_id == schema.workunits.c.id, or_(*too_large)
    )
