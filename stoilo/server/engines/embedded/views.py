"""Rows of the database as the frozen views that the rules look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.transitioner import Copy, Validity, WorkunitView
from stoilo.server.engines.interface import CopyOutcome, CopyState, OutcomeKind

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

__all__ = ["copy_of", "load_view"]


def copy_of(row: Row) -> Copy:  # type: ignore[type-arg]  # any row of `copies`
    """Return one row of `schema.copies` as the rules see it."""
    return Copy(
        name=row.name,
        state=CopyState(row.state),
        outcome=CopyOutcome(row.outcome),
        validity=Validity(row.validity),
        user_id=row.user_id,
        host_key=row.host_key,
        deadline=row.deadline,
    )


def load_view(connection: Connection, workunit_id: int) -> WorkunitView:
    """Return a workunit as the rules see it."""
    row = connection.execute(
        select(schema.workunits).where(schema.workunits.c.id == workunit_id)
    ).one()
    copies = connection.execute(
        select(schema.copies)
        .where(schema.copies.c.workunit_id == workunit_id)
        .order_by(schema.copies.c.id)
    ).all()
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
        copies=tuple(copy_of(copy) for copy in copies),
        outcome=None if row.outcome is None else OutcomeKind(row.outcome),
    )
