"""Where a workunit is, as its owner is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import distinct, func, select

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.accounts import LEVELS
from stoilo.server.engines.embedded.people.preferences import is_selected
from stoilo.server.engines.embedded.rules.records import Validity
from stoilo.server.engines.embedded.scheduling.wishes import load_offer, would_refuse
from stoilo.server.engines.embedded.views import load_view
from stoilo.server.engines.interface import (
    CopyOutcome,
    CopyState,
    CopyView,
    OutcomeKind,
    WorkunitStatus,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from stoilo.server.engines.embedded.rules.records import WorkunitView

__all__ = ["read_status"]


def read_status(connection: Connection, name: str, since: int) -> WorkunitStatus | None:
    """Return a workunit's status, None for names never created.

    Args:
        connection: of the engine's database.
        name: of the workunit.
        since: a host counts as attached when it called at that time, s, or later.
    """
    row = connection.execute(
        select(schema.workunits).where(schema.workunits.c.name == name)
    ).first()
    if row is None:
        return None
    views = _copies(connection, row.id)
    outcome = None if row.outcome is None else OutcomeKind(row.outcome)
    attached = _count_attached(connection, row.app, row.id, since)
    return WorkunitStatus(
        name=row.name,
        copies=views,
        outcome=outcome,
        users_needed=sum(view.state is CopyState.UNSENT for view in views),
        users_attached=attached,
        explanation=_explain(load_view(connection, row.id), views, attached),
    )


def _copies(connection: Connection, workunit_id: int) -> tuple[CopyView, ...]:
    """Return a workunit's copies, oldest first."""
    table, usages = schema.copies, schema.usages
    copies = connection.execute(
        select(table, usages.c.cpu_s)
        .outerjoin(usages, usages.c.copy_id == table.c.id)
        .where(table.c.workunit_id == workunit_id)
        .order_by(table.c.id)
    ).all()
    return tuple(
        CopyView(
            name=copy.name,
            state=CopyState(copy.state),
            outcome=_shown_outcome(copy),
            code=copy.code,
            sent_at=copy.sent_at,
            received_at=copy.received_at,
            cpu_s=copy.cpu_s or 0.0,
        )
        for copy in copies
    )


def _count_attached(
    connection: Connection, app: str, workunit_id: int, since: int
) -> int:
    """Return how many users have a host seen lately that may take a workunit."""
    levels = LEVELS[LEVELS.index(app) :] if app in LEVELS else ()
    hosts, users = schema.hosts, schema.users
    count = connection.scalar(
        select(func.count(distinct(hosts.c.user_id)))
        .join(users, users.c.id == hosts.c.user_id)
        .where(
            hosts.c.seen_at >= since,
            users.c.max_level.in_(levels),
            is_selected(app),
            ~would_refuse(app, load_offer(connection, workunit_id)),
        )
    )
    return int(count or 0)


def _shown_outcome(copy: Row) -> CopyOutcome:  # type: ignore[type-arg]  # a row of `copies`
    """Return the outcome as the owner sees it: a false value counts as invalid."""
    outvoted = copy.validity == Validity.INVALID
    return CopyOutcome.INVALID if outvoted else CopyOutcome(copy.outcome)


def _explain(view: WorkunitView, copies: tuple[CopyView, ...], attached: int) -> str:
    """Return one sentence about what a workunit waits for."""
    if view.outcome is not None:
        return f"ended: {view.outcome.value.replace('_', ' ')}"
    quorum = view.in_force.min_quorum
    alike = f" of class {view.host_class}" if view.host_class else ""
    unsent = sum(copy.state is CopyState.UNSENT for copy in copies)
    working = sum(copy.state is CopyState.IN_PROGRESS for copy in copies)
    done = sum(copy.outcome is CopyOutcome.SUCCESS for copy in copies)
    if unsent and attached < quorum:
        return f"needs {quorum} distinct users, {attached} attached"
    if unsent:
        waiting = f"{unsent} copies wait for a host{alike}"
        return f"{waiting}, {working} are on hosts, {done} are in"
    if working:
        return f"{working} copies are on hosts, {done} are in"
    return f"{done} results are being validated"
