"""What BOINC does not do by itself: ends that it would miss, questions, debts, cleaning up.

BOINC's validator writes a workunit's whole state back, so a cancellation that came in the
middle of a pass is lost: BOINC is told until it has taken it. And BOINC knows no date after
which no result may be sent out. Shortly before the last moment at which one could still
come back in time, a workunit with a result to be sent ends, and one that only waits for
results on their way is *frozen*: BOINC may make no further one, and ends it when it would
need one.

A workunit is *closed* when its outcome has been delivered and BOINC has deleted its
files: its claims on input files go then. Its rows stay until BOINC's own row is purged
(``db_purge``), so that nobody finds a workunit of BOINC's without knowing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, delete, exists, or_, select, update

from stoilo.server.db.bulk import select_in
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import (
    BoincOutcome,
    ErrorMask,
    FileDelete,
    ServerState,
    StageState,
    Validate,
    ask_validator,
    freeze,
    give_back,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

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


_PUT_S: Final = 3600


def pay_debts(database: Database) -> bool:
    """Give hosts back what a refusal cost them, once BOINC has taken it.

    Returns:
        Whether there was any.
    """
    table, theirs = tables.results, boinc_tables.results
    query = (
        select(table, theirs.c.id.label("there"), theirs.c.validate_state)
        .outerjoin(theirs, theirs.c.name == table.c.name)
        .where(table.c.owed == 1)
        .limit(AT_ONCE)
    )
    with database.read() as connection:
        owed = connection.execute(query).all()
    taken = [
        row
        for row in owed
        if row.there is None or row.validate_state == Validate.INVALID
    ]
    for row in taken:
        give_back(database, row)
        with database.write() as connection:
            paid = update(table).where(table.c.name == row.name)
            connection.execute(paid.values(owed=0))
    return bool(taken)


def ask_again(database: Database, now: int) -> bool:
    """Let BOINC ask about results that the server could not judge.

    Returns:
        Whether there was any.
    """
    table = tables.workunits
    query = (
        select(table.c.id, table.c.boinc_id)
        .where(table.c.outcome.is_(None), table.c.ask_at.between(1, now))
        .limit(AT_ONCE)
    )
    with database.read() as connection:
        due = connection.execute(query).all()
    for row, boinc_id in due:
        ask_validator(database, boinc_id)
        # again, should BOINC not ask
        put = {"ask_at": now + _PUT_S, "ask_put": 1}
        with database.write() as connection:
            mine = update(table).where(table.c.id == row)
            connection.execute(mine.values(put))
    return bool(due)


_PURGED_AT_ONCE: Final = 500
# A row lives so long at least: one that BOINC never had is gone from it at once.
_KEPT_S: Final = 86_400


class CleanUp:
    """Lets go of ended workunits."""

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now
        self._purged = 0  # the row of ours that was last looked at

    def close(self, remove: Callable[[Collection[str]], None]) -> bool:
        """Let go of what no workunit needs any more; `remove` takes files away."""
        table, there = tables.workunits, boinc_tables.workunits
        query = (
            select(table.c.id)
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(
                table.c.closed == 0,
                table.c.outcome.is_not(None),
                table.c.undelivered == 0,
                table.c.cancelling == 0,
                there.c.id.is_(None) | (there.c.file_delete_state == FileDelete.DONE),
            )
            .limit(AT_ONCE)
        )
        with self._database.read() as connection:
            rows = list(connection.scalars(query))
        if rows:
            remove(self._drop_needs(rows))
        return bool(rows)

    def purge(self) -> bool:
        """Remove closed workunits that BOINC has purged; returns whether there were any.

        Each call looks at the next some: BOINC may keep its rows for long.
        """
        table, there = tables.workunits, boinc_tables.workunits
        query = (
            select(table.c.id, table.c.created_at, there.c.id.label("there"))
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(table.c.closed == 1, table.c.id > self._purged)
            .order_by(table.c.id)
            .limit(_PURGED_AT_ONCE)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        self._purged = rows[-1].id if rows else 0
        old = self._now() - _KEPT_S
        gone = [row.id for row in rows if row.there is None and row.created_at <= old]
        return self._forget(gone) > 0

    def _drop_needs(self, rows: list[int]) -> list[str]:
        """Remove workunits' claims on files; returns files that nothing claims now."""
        table, needs = tables.workunits, tables.needs
        other = needs.alias()
        with self._database.write() as connection:
            mine = needs.c.workunit_id.in_(rows)
            files = set(connection.scalars(select(needs.c.file).where(mine)))
            connection.execute(delete(needs).where(mine))
            connection.execute(
                update(table).where(table.c.id.in_(rows)).values(closed=1)
            )
            used = set(
                connection.scalars(
                    select(other.c.file).where(other.c.file.in_(files)).distinct()
                )
            )
        return sorted(files - used)

    def _forget(self, rows: Sequence[int]) -> int:
        table, results = tables.workunits, tables.results
        owed = exists().where(results.c.workunit_id == table.c.id, results.c.owed == 1)
        query = select(table.c.id).where(
            table.c.id.in_(rows), table.c.closed == 1, ~owed
        )
        with self._database.write() as connection:
            gone = list(connection.scalars(query))
            for part in tables.parts:
                connection.execute(delete(part).where(part.c.workunit_id.in_(gone)))
            connection.execute(delete(table).where(table.c.id.in_(gone)))
        return len(gone)


def stray_outcomes(database: Database, kept: Path) -> list[int]:
    """Return workunits whose kept results nobody waits for any more.

    Those of one that has not ended are just being kept.
    """
    if not kept.is_dir():
        return []
    rows = [int(one.name) for one in kept.iterdir() if one.name.isdecimal()]
    table = tables.workunits
    with database.read() as connection:
        columns = [table.c.id, table.c.outcome, table.c.undelivered]
        found = select_in(connection, columns, table.c.id, rows)
    needed = {row for row, outcome, waits in found if outcome is None or waits}
    return sorted(set(rows) - needed)
