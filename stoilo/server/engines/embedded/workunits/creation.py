"""Making workunits and results: their rows, and how results are spread over hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, insert, or_, select, update

from stoilo.server.db.bulk import draw_tokens, insert_many, select_in
from stoilo.server.engines.embedded.accounts.host_filter import bound_rows, offer_rows
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import Validity
from stoilo.server.engines.interface import ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.db.records import Caller
    from stoilo.server.engines.workunits import WorkunitSpec


# An adaptive workunit starts *alone*: one result, and a quorum of one. It stays so while its
# results go to trusted hosts only; the first that goes to another host raises it to the
# quorum and target of its redundancy, for good (BOINC's unreplicated jobs).
def starts_alone(spec: WorkunitSpec) -> bool:
    """Say whether one result is enough at first."""
    return spec.replication.adaptive and spec.redundancy.min_quorum > 1


def first_results(spec: WorkunitSpec) -> int:
    """Return how many results a new workunit gets."""
    return 1 if starts_alone(spec) else spec.redundancy.target_results


def replication_rows(
    specs: Sequence[WorkunitSpec], row_of: dict[str, int]
) -> list[dict[str, object]]:
    """Return the rows of workunits that are homogeneous or adaptive."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "homogeneous": spec.replication.homogeneous.value,
            "host_class": "",
            "alone": int(starts_alone(spec)),
        }
        for spec in specs
        if spec.replication.homogeneous or starts_alone(spec)
    ]


def fits_class(caller: Caller) -> ColumnElement[bool]:
    """Return the condition that a workunit, outer joined, allows the caller's class."""
    table = schema.replications
    allowed: list[ColumnElement[bool]] = [
        table.c.workunit_id.is_(None),
        table.c.homogeneous == Homogeneity.NONE.value,
    ]
    for kind in (Homogeneity.COARSE, Homogeneity.FINE):
        own = caller.class_for(kind)
        if own:
            same = table.c.host_class.in_(["", own])
            allowed.append(and_(table.c.homogeneous == kind.value, same))
    return or_(*allowed)


def commit_class(connection: Connection, workunit_id: int, host_class: str) -> None:
    """Let further results go to hosts of this class only."""
    table = schema.replications
    connection.execute(
        update(table)
        .where(table.c.workunit_id == workunit_id)
        .values(host_class=host_class)
    )


def release_class(connection: Connection, workunit_id: int) -> None:
    """Let further results go to hosts of any class."""
    commit_class(connection, workunit_id, "")


def raise_quorum(connection: Connection, workunit_id: int, now: int) -> None:
    """Let the workunit's own redundancy hold; the missing results are made at once."""
    table, of = schema.replications, schema.workunits
    connection.execute(
        update(table).where(table.c.workunit_id == workunit_id).values(alone=0)
    )
    connection.execute(
        update(of).where(of.c.id == workunit_id).values(transition_at=now)
    )


_RESULT_SECRET_BYTES = 32


def existing_names(connection: Connection, names: Iterable[str]) -> Iterable[str]:
    """Return which of `names` are workunits already."""
    table = schema.workunits
    found = select_in(connection, [table.c.name], table.c.name, names)
    return [row[0] for row in found]


def insert_workunits(
    connection: Connection, specs: Sequence[WorkunitSpec], now: int
) -> None:
    """Insert workunits, what they need and their first results."""
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
    results = [
        (row_of[spec.name], spec.name, spec.priority, number)
        for spec in specs
        for number in range(first_results(spec))
    ]
    secret = draw_tokens(len(results), _RESULT_SECRET_BYTES)
    insert_many(
        connection,
        schema.results,
        [
            _result_row(*result, drawn=drawn)
            for result, drawn in zip(results, secret, strict=True)
        ],
    )


def _workunit_row(spec: WorkunitSpec, now: int) -> dict[str, object]:
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


def _result_row(
    workunit_id: int, workunit: str, priority: int, number: int, *, drawn: str
) -> dict[str, object]:
    """Return the columns of a new, unsent result; `drawn` is its own secret."""
    return {
        "name": f"{workunit}_{number}",
        "workunit_id": workunit_id,
        "state": ResultProgress.UNSENT.value,
        "outcome": ResultOutcome.NONE.value,
        "validity": Validity.INIT.value,
        "priority": priority,
        "upload_name": f"{workunit}_{number}_r{drawn[:16]}_0",
        "upload_token": drawn[16:],
    }


def add_results(connection: Connection, workunit_id: int, count: int) -> list[int]:
    """Insert further results of a workunit; return their rows."""
    table = schema.results
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
        _result_row(workunit_id, row.name, row.priority, start + number, drawn=drawn)
        for number, drawn in enumerate(draw_tokens(count, _RESULT_SECRET_BYTES))
    ]
    connection.execute(insert(table), made)
    names = [result["name"] for result in made]
    return list(connection.scalars(select(table.c.id).where(table.c.name.in_(names))))
