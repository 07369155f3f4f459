"""Rows of the database as the frozen views that the rules look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    RUNNING_CHECKS,
    CheckVerdict,
    Result,
    Validity,
    WorkunitView,
)
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection, Row, Select

__all__ = [
    "load_view",
    "load_views",
    "result_of",
    "results_of",
    "view_columns",
    "view_of",
]


def _workunit_query() -> Select:  # type: ignore[type-arg]  # columns of some tables
    """Return the query for workunits, how their results are spread, what is left of them."""
    table = schema.workunits
    spread, ended, box = schema.replications, schema.lingering, schema.outbox
    return (
        select(table, *view_columns())
        .outerjoin(spread, spread.c.workunit_id == table.c.id)
        .outerjoin(ended, ended.c.workunit_id == table.c.id)
        .outerjoin(box, box.c.workunit_id == table.c.id)
        .where(table.c.id.in_(bindparam("rows", expanding=True)))
    )


def view_columns() -> list[Any]:
    """Return what a view needs of `replications`, `lingering` and `outbox`."""
    spread, ended, box = schema.replications, schema.lingering, schema.outbox
    return [
        spread.c.homogeneous,
        spread.c.host_class,
        spread.c.alone,
        ended.c.workunit_id.label("lingering"),
        box.c.workunit_id.label("undelivered"),
    ]


def _results_query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    """Return the query for workunits' results, oldest first."""
    table, checks = schema.results, schema.spot_checks
    return (
        select(table, checks.c.verdict.label("check"))
        .outerjoin(checks, checks.c.copy_id == table.c.id)
        .where(table.c.workunit_id.in_(bindparam("rows", expanding=True)))
        .order_by(table.c.id)
    )


# Built once: every step of every workunit asks them.
_WORKUNITS, _RESULTS = _workunit_query(), _results_query()


def result_of(row: Row, check: str | None = None) -> Result:  # type: ignore[type-arg]  # any row of `results`
    """Return one row of `schema.results` as the rules see it.

    Args:
        row: of the table.
        check: the `CheckVerdict` of a re-check, None for any other result.
    """
    return Result(
        name=row.name,
        state=ResultProgress(row.state),
        outcome=ResultOutcome(row.outcome),
        validity=Validity(row.validity),
        user_id=row.user_id,
        host_key=row.host_key,
        deadline=row.deadline,
        recheck=check is not None,
        doubts=check == CheckVerdict.DOUBTED,
        for_anybody=check == CheckVerdict.OPEN,
        answered=check is not None and check not in RUNNING_CHECKS,
    )


def load_view(connection: Connection, workunit_id: int) -> WorkunitView:
    """Return a workunit as the rules see it."""
    return load_views(connection, [workunit_id])[workunit_id]


def load_views(
    connection: Connection, workunits: Collection[int]
) -> dict[int, WorkunitView]:
    """Return workunits as the rules see them; all of them exist."""
    if not workunits:
        return {}
    rows = connection.execute(_WORKUNITS, {"rows": list(workunits)}).all()
    results = results_of(connection, workunits)
    return {row.id: view_of(row, results[row.id]) for row in rows}


def results_of(
    connection: Connection, workunits: Collection[int]
) -> dict[int, list[Result]]:
    """Return the results of each workunit, oldest first."""
    found: dict[int, list[Result]] = {row: [] for row in workunits}
    rows = connection.execute(_RESULTS, {"rows": list(workunits)}).all()
    for row in rows:
        found[row.workunit_id].append(result_of(row, row.check))
    return found


def view_of(row: Row, results: Iterable[Result]) -> WorkunitView:  # type: ignore[type-arg]  # see below
    """Return a workunit as the rules see it.

    Args:
        row: of `workunits`, with `view_columns`.
        results: its own, oldest first.
    """
    return WorkunitView(
        redundancy=Redundancy(
            min_quorum=row.min_quorum,
            target_results=row.target_results,
            max_error=row.max_error,
            max_total=row.max_total,
            max_success=row.max_success,
            delay_bound_s=row.delay_bound_s,
        ),
        not_after=row.not_after,
        results=tuple(results),
        outcome=None if row.outcome is None else OutcomeKind(row.outcome),
        canonical=row.canonical or "",
        lingering=row.lingering is not None,
        delivered=row.undelivered is None,
        homogeneous=Homogeneity(row.homogeneous or ""),
        host_class=row.host_class or "",
        alone=bool(row.alone),
    )
