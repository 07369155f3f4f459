"""What BOINC's assimilator tells: a workunit's end, taken durably before it is answered.

BOINC's assimilator tells one end after the other and goes on when it is answered, so an
end that cannot be decided just now must not hold up those behind it. Once the results
that it rests on are copies of ours, the assimilator is let go; the end is told by BOINC's
own row from then on, and taken later, each time after twice as long. It waits with BOINC
only for what would be lost otherwise: a result that cannot be kept, a database that is
away.

Taken in the same way is what BOINC failed to tell: a workunit that it holds for
assimilated and we for open (our tables came back from a backup, or somebody answered in
our place). One that is gone from BOINC's tables is made anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, select, update

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from stoilo.server.engines.stock.outcomes import (
    kind_of,
    result_code,
    result_outcome,
)
from stoilo.server.engines.stock.project import boinc_tables, tables
from stoilo.server.engines.stock.project.boinc_tables import (
    StageState,
    Validate,
    find_own,
    note_boinc_row,
    results_of,
)
from stoilo.server.engines.stock.project.database import put_off
from stoilo.server.engines.stock.verdicts import message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.stock.outcomes import Outcomes
    from stoilo.server.engines.stock.project.boinc_tables import OwnWorkunit, ResultRow
    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.validator import ScriptValidator


log = logging.getLogger(__name__)
_AT_ONCE: Final = 500
_FIRST_WAIT_S: Final = 60
# So many times an end is put off for a result that cannot be judged: two hours.
_DOUBLINGS: Final = 6

_FAILED: Final = {
    ResultOutcome.CLIENT_ERROR,
    ResultOutcome.ABORTED,
    ResultOutcome.NO_REPLY,
    ResultOutcome.INVALID,
}
_LOST: Final = ("STO-E023", "the canonical result's file is lost")


@dataclass(frozen=True, slots=True)
class _End:
    """How BOINC holds a workunit to have ended; `canonical` and `mask` 0: it goes on."""

    boinc_id: int  # its row
    canonical: int  # row of its canonical result
    mask: int  # of its errors


class ScriptAssimilator:
    """Takes ends from BOINC; idempotent."""

    def __init__(
        self,
        database: Database,
        outcomes: Outcomes,
        judge: ScriptValidator,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._outcomes = outcomes
        self._judge = judge
        self._now = now

    def hear(self, *, name: str = "", boinc_id: int = 0) -> None:
        """Take a workunit's end; one that is not ours, or has ended, changes nothing.

        Raises:
            InternalError: ``STO-R030``; nothing was taken, to be told again.
        """
        with self._database.read() as connection:
            own = find_own(connection, name=name, boinc_id=boinc_id)
            end = _find_end(connection, own.name) if own is not None else None
        if own is None:
            log.warning("BOINC tells of workunit %s, not ours", name or boinc_id)
        elif own.outcome is None:
            if end is None or not (end.canonical or end.mask):
                log.warning("BOINC tells of workunit %s, which goes on", own.name)
            else:
                own = note_boinc_row(self._database, own, end.boinc_id)
                self._take(own, end)

    def hear_what_was_missed(self) -> bool:
        """Take what BOINC holds for told, as it is due; make anew what it has lost.

        Returns:
            Whether anything has ended, or is made anew.
        """
        table, there = tables.workunits, boinc_tables.workunits
        query = (
            select(
                table.c.id, table.c.name, table.c.attempts, there.c.id.label("there")
            )
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(
                table.c.outcome.is_(None),
                table.c.boinc_id != 0,
                table.c.retry_at <= self._now(),
                there.c.id.is_(None) | (there.c.assimilate_state == StageState.DONE),
            )
            .order_by(table.c.retry_at, table.c.id)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            found = connection.execute(query).all()
        return any([self._take_missed(*row) for row in found])  # noqa: C419 - all of them

    def _take_missed(
        self, row: int, name: str, attempts: int, there: int | None
    ) -> bool:
        """Take one end, or have one workunit made anew; returns whether that was done.

        What cannot be taken is put off: those behind it come first.
        """
        if there is None:
            self._forget_made(row, name)
            return True
        try:
            self.hear(name=name)
        except StoiloError as error:
            log.warning("the end of %s waits: %s", name, error)
        with self._database.read() as connection:
            own = find_own(connection, name=name)
        if own is None or own.outcome is not None:
            return own is not None
        if own.attempts == attempts:
            self._put_off(row)
        return False

    def _forget_made(self, row: int, name: str) -> None:
        """Let a workunit be made anew; what was said of its results is void.

        BOINC will call the new ones by the names of the old.
        """
        log.error("workunit %s is gone from BOINC's database: made anew", name)
        table = tables.workunits
        with self._database.write() as connection:
            changed = connection.execute(
                update(table)
                .where(table.c.id == row, table.c.outcome.is_(None))
                .values(boinc_id=0, retry_at=0, attempts=0, ask_at=0, asked=0)
            )
            if changed.rowcount:
                mine = tables.results.c.workunit_id == row
                connection.execute(delete(tables.results).where(mine))
        if changed.rowcount:
            self._outcomes.kept.forget(row)

    def _take(self, own: OwnWorkunit, end: _End) -> None:
        """Take an end, or put it off once nothing of it can be lost any more."""
        with self._database.read() as connection:
            rows = results_of(connection, workunit=own.boinc_id)
        needed = tuple(row for row in rows if _matters(row, end))
        self._judge.hold(own, needed)
        try:
            if end.canonical:
                self._take_canonical(own, end, needed)
            else:
                self._take_error(own, end, rows, needed)
        except Exception:  # whatever it is, it must not hold up the ends behind it
            log.exception("the end of %s cannot be taken yet", own.name)
            self._put_off(own.row)

    def _put_off(self, row: int) -> None:
        put_off(self._database, [row], self._now(), _FIRST_WAIT_S, _DOUBLINGS)

    def _take_canonical(
        self, own: OwnWorkunit, end: _End, needed: Sequence[ResultRow]
    ) -> None:
        """End a workunit with its canonical result, or with one that equals it."""
        passed = self._judge.passed(own, needed)
        _check_decided(own, passed.undecided)
        names = {row.name for row in needed if row.id == end.canonical}
        chosen = [one for one in passed.valid if one.name in names] or passed.valid
        if not chosen:
            code, message = _LOST
            kind = OutcomeKind.TOO_MANY_ERRORS
            self._outcomes.end(own.row, kind, code=code, message=message)
            return
        kind = OutcomeKind.CANONICAL
        canonical = chosen[0].name
        self._outcomes.end(own.row, kind, canonical=canonical, valid=passed.valid)

    def _take_error(
        self,
        own: OwnWorkunit,
        end: _End,
        rows: Sequence[ResultRow],
        needed: Sequence[ResultRow],
    ) -> None:
        """End a workunit that failed; what passed may serve the items of a map."""
        passed = self._judge.passed(own, needed)
        if own.attempts < _DOUBLINGS:
            _check_decided(own, passed.undecided)
        with self._database.read() as connection:
            code, message = _last_failure(connection, rows)
        kind = kind_of(end.mask, frozen=own.frozen)
        self._outcomes.end(
            own.row, kind, code=code, message=message, valid=passed.valid
        )


def _matters(row: ResultRow, end: _End) -> bool:
    if end.canonical:
        return row.validate_state == Validate.VALID or row.id == end.canonical
    return row.in_doubt and kind_of(end.mask, frozen=False) is not OutcomeKind.CANCELLED


def _check_decided(own: OwnWorkunit, undecided: int) -> None:
    """Raise ``STO-R042`` when results of an end could not be judged."""
    if undecided:
        raise InternalError(
            "STO-R042", f"{undecided} results of {own.name} cannot be judged just now"
        )


def _find_end(connection: Connection, name: str) -> _End | None:
    table = boinc_tables.workunits
    row = connection.execute(
        select(table.c.id, table.c.canonical_resultid, table.c.error_mask).where(
            table.c.name == name
        )
    ).first()
    return None if row is None else _End(*row)


def _last_failure(
    connection: Connection, results: Sequence[ResultRow]
) -> tuple[str, str]:
    for row in reversed(results):
        ended = result_outcome(row.outcome, row.validate_state, row.exit_status)
        if ended in _FAILED:
            return message_of(connection, row.name) or (result_code(ended), "")
    return "", ""
