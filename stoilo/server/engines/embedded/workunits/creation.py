"""Making workunits and results: their rows."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select

from stoilo.core.types import Redundancy
from stoilo.server.db.bulk import draw_tokens, insert_many, select_in
from stoilo.server.engines.embedded.accounts.preferences import join_words
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import Validity
from stoilo.server.engines.interface import ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.workunits.ranks import Ranks
    from stoilo.server.engines.workunits import WorkunitSpec

_RESULT_SECRET_BYTES = 32
# Columns of `workunits` that are fields by the same names
_OF_REDUNDANCY = tuple(one.name for one in fields(Redundancy))
_OF_SPEC = (
    *("name", "app", "not_after", "result_max_bytes", "fpops_est", "fpops_bound"),
    *("memory_bound", "disk_bound"),
)


# An adaptive workunit starts *alone*: one result, and a quorum of one. It stays so while its
# results go to trusted hosts only; the first that goes to another host raises it to the
# quorum and target of its redundancy, for good (BOINC's unreplicated jobs).
def starts_alone(spec: WorkunitSpec) -> bool:
    """Say whether one result is enough at first."""
    return spec.replication.adaptive and spec.redundancy.min_quorum > 1


def insert_workunits(
    connection: Connection, specs: Sequence[WorkunitSpec], ranks: Ranks, now: int
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
    results = [
        (row_of[spec.name], spec.name, number, rank)
        for spec in specs
        for rank in [_rank(connection, spec, ranks)]
        for number in range(1 if starts_alone(spec) else spec.redundancy.target_results)
    ]
    drawn = draw_tokens(len(results), _RESULT_SECRET_BYTES)
    rows = [
        _result_row(*one, drawn=own) for one, own in zip(results, drawn, strict=True)
    ]
    insert_many(connection, schema.results, rows)


def _workunit_row(spec: WorkunitSpec, now: int) -> dict[str, object]:
    redundancy = spec.redundancy
    return {
        **{name: getattr(redundancy, name) for name in _OF_REDUNDANCY},
        **{name: getattr(spec, name) for name in _OF_SPEC},
        "created_at": now,
        "transition_at": max(now, spec.not_after - redundancy.delay_bound_s + 1),
        "reviewed": int(spec.reviewed),
        "public_source": int(spec.public_source),
        "topics": join_words(spec.topics),
        "homogeneous": spec.replication.homogeneous.value,
        "alone": int(starts_alone(spec)),
    }


def _result_row(
    workunit_id: int, workunit: str, number: int, rank: int, *, drawn: str
) -> dict[str, object]:
    """Return the columns of a new, unsent result; `drawn` is its own secret."""
    return {
        "name": f"{workunit}_{number}",
        "workunit_id": workunit_id,
        "rank": rank,
        "state": ResultProgress.UNSENT.value,
        "outcome": ResultOutcome.NONE.value,
        "validity": Validity.INIT.value,
        "upload_name": f"{workunit}_{number}_r{drawn[:16]}_0",
        "upload_token": drawn[16:],
    }


def _rank(connection: Connection, spec: WorkunitSpec, ranks: Ranks) -> int:
    """Return a new workunit's rank; after a start those that wait say where the app is."""
    if ranks.knows(spec.app):
        return ranks.place(spec)
    table, of = schema.results, schema.workunits
    waits = table.c.state == ResultProgress.UNSENT.value
    query = select(func.min(table.c.rank)).join(of, of.c.id == table.c.workunit_id)
    first = connection.scalar(query.where(waits, of.c.app == spec.app))
    return ranks.place(spec, first or 0)


def add_results(
    connection: Connection, workunit_id: int, count: int, recheck: str = ""
) -> None:
    """Insert further results of a workunit, or the `recheck` of one."""
    table, of = schema.results, schema.workunits
    known = select(func.count()).where(table.c.workunit_id == workunit_id)
    rank = select(func.min(table.c.rank)).where(table.c.workunit_id == workunit_id)
    row = connection.execute(
        select(
            of.c.name,
            known.scalar_subquery().label("made"),
            rank.scalar_subquery().label("rank"),
        ).where(of.c.id == workunit_id)
    ).one()
    drawn = draw_tokens(count, _RESULT_SECRET_BYTES)
    made = [
        _result_row(workunit_id, row.name, row.made + number, row.rank, drawn=own)
        | {"recheck": recheck}
        for number, own in enumerate(drawn)
    ]
    connection.execute(insert(table), made)
