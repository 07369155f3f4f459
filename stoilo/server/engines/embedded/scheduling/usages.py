"""What hosts say that their copies took; nothing of it is proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.db.bulk import insert_many
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import ReportedResult
    from stoilo.server.engines.embedded.scheduling.holdings import HeldCopy

__all__ = ["note_usages"]

MOST = 1e15  # s and FLOP/s: keeps products finite; the server clamps by the limits


def note_usages(
    connection: Connection,
    held: Mapping[str, HeldCopy],
    reports: Iterable[ReportedResult],
    flops: float,
) -> None:
    """Keep the times of a host's own uploaded copies; what came first stays.

    A client that measures no processor time says the elapsed one.

    Args:
        connection: of the caller's transaction.
        held: the host's copies.
        reports: what it says; names of others' copies are passed over.
        flops: the host's own benchmark, FLOP/s, 0 where it sends none.
    """
    times = {report.name: report.cpu_s or report.elapsed_s for report in reports}
    said = {name: time for name, time in times.items() if time > 0 and name in held}
    fresh = [
        {
            "copy_id": held[name].id,
            "cpu_s": min(time, MOST),
            "flops": min(max(flops, 0.0), MOST),
        }
        for name, time in said.items()
        if held[name].uploaded and not held[name].measured
    ]
    insert_many(connection, schema.usages, fresh)
