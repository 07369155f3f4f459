"""Making workunits and copies: the checks and the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select

from stoilo.server.db.bulk import draw_tokens, insert_many, select_in
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.records import Validity
from stoilo.server.engines.embedded.rules.replication import (
    first_copies,
    replication_rows,
)
from stoilo.server.engines.embedded.scheduling.bounds import bound_rows
from stoilo.server.engines.embedded.scheduling.wishes import offer_rows
from stoilo.server.engines.interface import CopyOutcome, CopyState
from stoilo.server.engines.specs import check_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.interface import WorkunitSpec

__all__ = ["add_copies", "check_spec", "existing_names", "insert_workunits"]

_COPY_SECRET_BYTES = 32


def existing_names(connection: Connection, names: Iterable[str]) -> Iterable[str]:
    """Return which of `names` are workunits already."""
    table = schema.workunits
    found = select_in(connection, [table.c.name], table.c.name, names)
    return [row[0] for row in found]


def insert_workunits(
    connection: Connection, specs: Sequence[WorkunitSpec], now: int
) -> None:
    """Insert workunits, what they need and their first copies."""
    table = schema.workunits
    insert_many(connection, table, [_workunit_row(spec, now) for spec in specs])
    names = [spec.name for spec in specs]
    found = select_in(connection, [table.c.name, table.c.id], table.c.name, names)
    row_of: dict[str, int] = dict(found)
    needs = [
        {
            "workunit_id": row_of[spec.name],
            "open_name": file.open_name,
            "digest": file.digest,
            "sticky": int(file.sticky),
        }
        for spec in specs
        for file in spec.files
    ]
    insert_many(connection, schema.workunit_files, needs)
    insert_many(connection, schema.offers, offer_rows(specs, row_of))
    spread = replication_rows(specs, row_of)
    insert_many(connection, schema.replications, spread)
    insert_many(connection, schema.bounds, bound_rows(specs, row_of))
    copies = [
        (row_of[spec.name], spec.name, spec.priority, number)
        for spec in specs
        for number in range(first_copies(spec))
    ]
    secret = draw_tokens(len(copies), _COPY_SECRET_BYTES)
    insert_many(
        connection,
        schema.copies,
        [
            _copy_row(*copy, drawn=drawn)
            for copy, drawn in zip(copies, secret, strict=True)
        ],
    )


def _workunit_row(spec: WorkunitSpec, now: int) -> dict[str, object]:
    """Return the columns of a new workunit."""
    redundancy = spec.redundancy
    return {
        "name": spec.name,
        "app": spec.app,
        "min_quorum": redundancy.min_quorum,
        "target_results": redundancy.target_results,
        "max_error": redundancy.max_error,
        "max_total": redundancy.max_total,
        "max_success": redundancy.max_success,
        "delay_bound_s": redundancy.delay_bound_s,
        "not_after": spec.not_after,
        "result_max_bytes": spec.result_max_bytes,
        "fpops_est": spec.fpops_est,
        "fpops_bound": spec.fpops_bound,
        "priority": spec.priority,
        "created_at": now,
        "transition_at": max(now, spec.not_after - redundancy.delay_bound_s + 1),
    }


def _copy_row(
    workunit_id: int, workunit: str, priority: int, number: int, *, drawn: str
) -> dict[str, object]:
    """Return the columns of a new, unsent copy; `drawn` is its own secret."""
    return {
        "name": f"{workunit}_{number}",
        "workunit_id": workunit_id,
        "state": CopyState.UNSENT.value,
        "outcome": CopyOutcome.NONE.value,
        "validity": Validity.INIT.value,
        "priority": priority,
        "upload_name": f"{workunit}_{number}_r{drawn[:16]}_0",
        "upload_token": drawn[16:],
    }


def add_copies(connection: Connection, workunit_id: int, count: int) -> list[int]:
    """Insert further copies of a workunit; return their rows."""
    table = schema.copies
    row = connection.execute(
        select(schema.workunits.c.name, schema.workunits.c.priority).where(
            schema.workunits.c.id == workunit_id
        )
    ).one()
    first = connection.scalar(
        select(func.count()).where(table.c.workunit_id == workunit_id)
    )
    start = int(first or 0)
    made = [
        _copy_row(workunit_id, row.name, row.priority, start + number, drawn=drawn)
        for number, drawn in enumerate(draw_tokens(count, _COPY_SECRET_BYTES))
    ]
    connection.execute(insert(table), made)
    names = [copy["name"] for copy in made]
    return list(connection.scalars(select(table.c.id).where(table.c.name.in_(names))))
