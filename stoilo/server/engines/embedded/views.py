"""Rows of the database as the frozen views that the rules look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.records import (
    CheckVerdict,
    Copy,
    Validity,
    WorkunitView,
)
from stoilo.server.engines.interface import (
    CopyOutcome,
    CopyState,
    Homogeneity,
    OutcomeKind,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row, Select

__all__ = ["copy_of", "load_view"]


def _workunit_query() -> Select:  # type: ignore[type-arg]  # columns of some tables
    """Return the query for a workunit, how its copies are spread, what is left of it."""
    table, spread = schema.workunits, schema.replications
    ended, box = schema.lingering, schema.outbox
    return (
        select(
            table,
            spread.c.homogeneous,
            spread.c.host_class,
            spread.c.alone,
            ended.c.workunit_id.label("lingering"),
            box.c.workunit_id.label("undelivered"),
        )
        .outerjoin(spread, spread.c.workunit_id == table.c.id)
        .outerjoin(ended, ended.c.workunit_id == table.c.id)
        .outerjoin(box, box.c.workunit_id == table.c.id)
        .where(table.c.id == bindparam("row"))
    )


def _copies_query() -> Select:  # type: ignore[type-arg]  # columns of two tables
    """Return the query for a workunit's copies, oldest first."""
    table, checks = schema.copies, schema.spot_checks
    return (
        select(table, checks.c.verdict.label("check"))
        .outerjoin(checks, checks.c.copy_id == table.c.id)
        .where(table.c.workunit_id == bindparam("row"))
        .order_by(table.c.id)
    )


# Built once: every step of every workunit asks them.
_WORKUNIT, _COPIES = _workunit_query(), _copies_query()


def copy_of(row: Row, check: str | None = None) -> Copy:  # type: ignore[type-arg]  # any row of `copies`
    """Return one row of `schema.copies` as the rules see it.

    Args:
        row: of the table.
        check: the `CheckVerdict` of a re-check, None for any other copy.
    """
    return Copy(
        name=row.name,
        state=CopyState(row.state),
        outcome=CopyOutcome(row.outcome),
        validity=Validity(row.validity),
        user_id=row.user_id,
        host_key=row.host_key,
        deadline=row.deadline,
        recheck=check is not None,
        doubts=check == CheckVerdict.DOUBTED,
        for_anybody=check == CheckVerdict.OPEN,
    )


def load_view(connection: Connection, workunit_id: int) -> WorkunitView:
    """Return a workunit as the rules see it."""
    which = {"row": workunit_id}
    row = connection.execute(_WORKUNIT, which).one()
    copies = connection.execute(_COPIES, which).all()
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
        copies=tuple(copy_of(copy, copy.check) for copy in copies),
        outcome=None if row.outcome is None else OutcomeKind(row.outcome),
        canonical=row.canonical or "",
        lingering=row.lingering is not None,
        delivered=row.undelivered is None,
        homogeneous=Homogeneity(row.homogeneous or ""),
        host_class=row.host_class or "",
        alone=bool(row.alone),
    )
