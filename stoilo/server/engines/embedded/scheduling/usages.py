"""What hosts say that their copies took; nothing of it is proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from stoilo.server.bulk import insert_many
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from stoilo.executor.messages import ReportedResult

__all__ = ["note_usages"]

MOST = 1e15  # s and FLOP/s: keeps products finite; the server clamps by the limits


def note_usages(
    connection: Connection,
    host_id: int,
    reports: Sequence[ReportedResult],
    flops: float,
) -> None:
    """Keep the times of a host's own uploaded copies; what came first stays.

    A client that measures no processor time says the elapsed one.

    Args:
        connection: of the caller's transaction.
        host_id: who reports.
        reports: what it says; names of others' copies are passed over.
        flops: the host's own benchmark, FLOP/s, 0 where it sends none.
    """
    times = {report.name: report.cpu_s or report.elapsed_s for report in reports}
    said = {name: time for name, time in times.items() if time > 0}
    if not said:
        return
    table, known = schema.copies, schema.usages
    rows = connection.execute(
        select(table.c.id, table.c.name)
        .outerjoin(known, known.c.copy_id == table.c.id)
        .where(
            table.c.name.in_(said),
            table.c.host_id == host_id,
            table.c.upload_digest.is_not(None),
            known.c.copy_id.is_(None),
        )
    ).all()
    fresh = [
        {
            "copy_id": row.id,
            "cpu_s": min(said[row.name], MOST),
            "flops": min(max(flops, 0.0), MOST),
        }
        for row in rows
    ]
    insert_many(connection, known, fresh)
