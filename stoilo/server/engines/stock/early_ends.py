"""Workunits that end before BOINC would end them: cancelled, or their admission ends.

BOINC's validator writes a workunit's whole state back, so a cancellation that came in the
middle of a pass is lost: BOINC is told until it has taken it. And BOINC knows no date after
which no result may be sent out. Shortly before the last moment at which one could still
come back in time, a workunit with a result to be sent ends, and one that only waits for
results on their way is *frozen*: BOINC may make no further one, and ends it when it would
need one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, exists, or_, select, update

from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import (
    BoincOutcome,
    ErrorMask,
    ServerState,
    StageState,
    freeze,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement

    from stoilo.server.engines.stock.outcomes import Outcomes
    from stoilo.server.engines.stock.project.database import Database


AT_ONCE: Final = 200  # workunits that are looked at together


def cancel_untold(database: Database, now: int, *which: ColumnElement[bool]) -> bool:
    """Have BOINC drop workunits that nobody needs, as its own ``cancel_jobs`` does.

    To be called while nothing is being made: what is half made cannot be cancelled.
    Source: BOINC sched/backend_lib.cpp (``cancel_jobs``).

    Returns:
        Whether it was told of any, or has taken any.
    """
    own, there = tables.workunits, boinc_tables.workunits
    over = or_(
        there.c.assimilate_state == StageState.DONE,
        and_(there.c.error_mask != 0, there.c.assimilate_state != StageState.INIT),
    )
    untold = there.c.error_mask.bitwise_and(ErrorMask.CANCELLED) == 0
    query = (
        select(own.c.id, own.c.boinc_id, there.c.id.label("there"), over)
        # by name: its number may not have been noted yet
        .outerjoin(there, there.c.name == own.c.name)
        .where(own.c.cancelling == 1, *which)
        .where(or_(there.c.id.is_(None), over, untold))
        .order_by(own.c.id)
        .limit(AT_ONCE)
    )
    with database.read() as connection:
        found = connection.execute(query).all()
    if not found:
        return False
    done = [row for row, _, there, is_over in found if there is None or is_over]
    _cancel(database, [there for row, _, there, _ in found if row not in done], now)
    with database.write() as connection:
        mine = update(own).where(own.c.id.in_(done))
        connection.execute(mine.values(cancelling=0))
        for row, boinc_id, there_id, _ in found:
            if there_id and not boinc_id:
                mine = update(own).where(own.c.id == row)
                connection.execute(mine.values(boinc_id=there_id))
    return True


def _cancel(database: Database, numbers: Sequence[int], now: int) -> None:
    """Cancel workunits by BOINC's numbers; may be repeated."""
    if not numbers:
        return
    workunits, results = boinc_tables.workunits, boinc_tables.results
    waiting = results.c.server_state <= ServerState.UNSENT
    dropped = {"server_state": ServerState.OVER, "outcome": BoincOutcome.DIDNT_NEED}
    cancelled = {
        "error_mask": workunits.c.error_mask.bitwise_or(ErrorMask.CANCELLED),
        "transition_time": now,
    }
    for query, values in (
        (update(results).where(results.c.workunitid.in_(numbers), waiting), dropped),
        (update(workunits).where(workunits.c.id.in_(numbers)), cancelled),
    ):
        with database.write() as connection:
            connection.execute(query.values(values))


# So long before the last moment no result is issued any more: we look once a second.
ADMISSION_MARGIN_S: Final = 5


def end_admissions(database: Database, outcomes: Outcomes, now: int) -> bool:
    """End or freeze workunits that would need a result beyond their admission.

    Returns:
        Whether there was any.
    """
    own, results = tables.workunits, boinc_tables.results
    waits = exists().where(
        results.c.workunitid == own.c.boinc_id,
        results.c.server_state.in_((ServerState.INACTIVE, ServerState.UNSENT)),
    )
    due = own.c.frozen == 0, own.c.last_at < now + ADMISSION_MARGIN_S
    # BOINC gave it a result in the moment it was frozen
    late = own.c.frozen == 1, own.c.boinc_id != 0, waits
    any_due = False
    for which in (due, late):
        query = (
            select(own.c.id, own.c.boinc_id, waits)
            .where(own.c.outcome.is_(None), *which)
            .order_by(own.c.last_at)
            .limit(AT_ONCE)
        )
        with database.read() as connection:
            found = connection.execute(query).all()
        for row, boinc_id, is_waiting in found:
            if is_waiting or not boinc_id:
                outcomes.end(row, OutcomeKind.ADMISSION_ENDED, cancel=True)
            else:
                freeze(database, boinc_id)
        any_due = any_due or bool(found)
    return any_due
