"""A workunit's one outcome: decided in one transaction, then delivered to the server.

Whoever comes first decides: BOINC's assimilator with a canonical result or an error, a
cancellation, a broken validator, too many refusals, the admission's end. What comes later
finds the outcome there and changes nothing. The results that it names are copies of ours
(`kept`): BOINC may delete its own as soon as it has been answered.

The server may be busy or away: an outcome that it does not take waits, and comes again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import select, update

from stoilo.server.engines.interface import (
    OutcomeKind,
    ReceivedResult,
    ResultOutcome,
    ResultProgress,
    WorkunitOutcome,
)
from stoilo.server.engines.questions import deliver
from stoilo.server.engines.stock.project import tables
from stoilo.server.engines.stock.project.boinc_tables import (
    BoincOutcome,
    ErrorMask,
    ServerState,
    Validate,
)
from stoilo.server.engines.stock.project.database import put_off
from stoilo.server.engines.stock.verdicts import (
    CODE_CHARS,
    KEPT,
    MESSAGE_CHARS,
    note_passed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.interface import Assimilator
    from stoilo.server.engines.stock.kept import KeptResults
    from stoilo.server.engines.stock.project.database import Database


log = logging.getLogger(__name__)
_AT_ONCE: Final = 64
# How long an outcome that was not taken waits, s, and how often twice as long.
_FIRST_WAIT_S: Final = 1
_DOUBLINGS: Final = 5
# After so many tries, about a minute and a half, a file that is gone stays gone.
_LOST_TRIES: Final = 8


class Outcomes:
    """Ends workunits, and tells the server of them until it has taken it.

    Args:
        database: the project's.
        kept: the results that wait for a verdict or for delivery.
        now: s since 1970.
    """

    def __init__(
        self, database: Database, kept: KeptResults, now: Callable[[], int]
    ) -> None:
        self._database = database
        self.kept = kept
        self._now = now

    def end(
        self,
        row: int,
        kind: OutcomeKind,
        *,
        code: str = "",
        message: str = "",
        canonical: str = "",
        valid: Sequence[ReceivedResult] = (),
        cancel: bool = False,
    ) -> bool:
        """End a workunit unless it has ended; returns whether this did it.

        Args:
            row: ours.
            kind: how.
            code: of the deciding check or comparison.
            message: with it.
            canonical: name of the canonical result, one of `valid`.
            valid: results that the outcome names, as they were kept.
            cancel: BOINC is to be told that nobody needs it any more.

        Raises:
            InternalError: ``STO-R030``; nothing has changed.
        """
        said = {"code": code[:CODE_CHARS], "message": message[:MESSAGE_CHARS]}
        with self._database.write() as connection:
            if not _set_outcome(connection, row, kind, cancel=cancel, **said):
                return False
            for one in valid:
                note_passed(connection, row, one)
            table = tables.results
            for agrees, names in ((1, [one.name for one in valid]), (2, [canonical])):
                named = table.c.name.in_(names)
                connection.execute(update(table).where(named).values(agrees=agrees))
        return True

    def cancel(self, rows: Sequence[int]) -> list[int]:
        """Cancel workunits that have not ended, in one transaction; returns which.

        Raises:
            InternalError: ``STO-R030``; nothing has changed.
        """
        kind = OutcomeKind.CANCELLED
        with self._database.write() as connection:
            return [
                row for row in rows if _set_outcome(connection, row, kind, cancel=True)
            ]

    def deliver(self, assimilator: Assimilator) -> bool:
        """Deliver what is due; returns whether anything was tried."""
        table = tables.workunits
        query = (
            select(table)
            .where(table.c.undelivered == 1, table.c.retry_at <= self._now())
            .order_by(table.c.retry_at, table.c.id)
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            due = connection.execute(query).all()
        for row in due:
            self._tell(row, assimilator)
        return bool(due)

    def retry_all(self) -> None:
        """Make everything undelivered due: a start is a new chance."""
        table = tables.workunits
        with self._database.write() as connection:
            connection.execute(
                update(table).where(table.c.undelivered == 1).values(retry_at=0)
            )

    def _tell(self, row: Row, assimilator: Assimilator) -> None:  # type: ignore[type-arg]  # a row of `workunits`
        with self._database.read() as connection:
            outcome = self._read(connection, row)
        if row.attempts >= _LOST_TRIES and _is_lost(outcome):
            log.error("results of %s are gone: to be computed again", row.name)
            kind = OutcomeKind.ADMISSION_ENDED
            outcome = replace(outcome, kind=kind, canonical=None, valid=())
        if not deliver(outcome, assimilator):
            wait = (self._now(), _FIRST_WAIT_S, _DOUBLINGS)
            put_off(self._database, [row.id], *wait, ended=True)
            return
        mine = update(tables.workunits).where(tables.workunits.c.id == row.id)
        with self._database.write() as connection:
            connection.execute(mine.values(undelivered=0))
        self.kept.forget(row.id)

    def _read(self, connection: Connection, row: Row) -> WorkunitOutcome:  # type: ignore[type-arg]  # a row of `workunits`
        """Return the outcome of a workunit that has one, as it was first decided."""
        table = tables.results
        columns = (table.c[name] for name in (*KEPT, "agrees"))
        query = select(*columns).where(
            table.c.workunit_id == row.id, table.c.agrees > 0
        )
        canonical, valid = None, []
        for *values, agrees in connection.execute(query.order_by(table.c.name)):
            facts = dict(zip(KEPT, values, strict=True))
            path = self.kept.path_of(row.id, facts["name"])
            valid.append(ReceivedResult(workunit=row.name, path=path, **facts))
            if agrees > 1:
                canonical = valid[-1]
        return WorkunitOutcome(
            workunit=row.name,
            kind=OutcomeKind(row.outcome),
            canonical=canonical,
            valid=tuple(valid),
            code=row.code,
            message=row.message,
        )


def _set_outcome(
    connection: Connection, row: int, kind: OutcomeKind, *, cancel: bool, **said: str
) -> bool:
    """Write a workunit's outcome unless it has one; returns whether this did it."""
    table = tables.workunits
    values = {"undelivered": 1, "retry_at": 0, "attempts": 0, "cancelling": int(cancel)}
    changed = connection.execute(
        update(table)
        .where(table.c.id == row, table.c.outcome.is_(None))
        .values(outcome=kind.value, **values, **said)
    )
    return bool(changed.rowcount)


# BOINC's exit status; not counted as an error there either.
ABORTED_BY_VOLUNTEER: Final = 203

_STATES: Final[dict[int, ResultProgress]] = {
    ServerState.INACTIVE: ResultProgress.UNSENT,
    ServerState.UNSENT: ResultProgress.UNSENT,
    ServerState.IN_PROGRESS: ResultProgress.IN_PROGRESS,
}
_OUTCOMES: Final[dict[int, ResultOutcome]] = {
    BoincOutcome.SUCCESS: ResultOutcome.SUCCESS,
    BoincOutcome.COULDNT_SEND: ResultOutcome.CLIENT_ERROR,
    BoincOutcome.CLIENT_ERROR: ResultOutcome.CLIENT_ERROR,
    BoincOutcome.NO_REPLY: ResultOutcome.NO_REPLY,
    BoincOutcome.CLIENT_DETACHED: ResultOutcome.NO_REPLY,
    BoincOutcome.DIDNT_NEED: ResultOutcome.NOT_NEEDED,
    BoincOutcome.VALIDATE_ERROR: ResultOutcome.INVALID,
}
_CODES: Final = {
    ResultOutcome.CLIENT_ERROR: "STO-E021",
    ResultOutcome.ABORTED: "STO-E021",
    ResultOutcome.NO_REPLY: "STO-E022",
    ResultOutcome.INVALID: "STO-R052",
}


def kind_of(mask: int, *, frozen: bool) -> OutcomeKind:
    """Return how a workunit with an error mask ended.

    Args:
        mask: BOINC's, not 0.
        frozen: no result could be issued any more, because the admission ends.
    """
    bits = ErrorMask(mask & sum(ErrorMask))
    if ErrorMask.CANCELLED in bits:  # by the operator, with BOINC's own tools
        return OutcomeKind.CANCELLED
    if frozen and ErrorMask.TOO_MANY_TOTAL in bits:
        return OutcomeKind.ADMISSION_ENDED
    if ErrorMask.TOO_MANY_ERRORS in bits:
        return OutcomeKind.TOO_MANY_ERRORS
    if ErrorMask.TOO_MANY_TOTAL in bits:
        return OutcomeKind.TOO_MANY_TOTAL
    if ErrorMask.TOO_MANY_SUCCESS in bits:
        return OutcomeKind.TOO_MANY_SUCCESS
    return OutcomeKind.TOO_MANY_ERRORS


def result_state(server_state: int) -> ResultProgress:
    """Return where a result is."""
    return _STATES.get(server_state, ResultProgress.OVER)


def result_outcome(
    outcome: int, validate_state: int, exit_status: int
) -> ResultOutcome:
    """Return how a result ended, as its owner sees it."""
    if validate_state == Validate.INVALID:
        return ResultOutcome.INVALID
    if outcome == BoincOutcome.CLIENT_ERROR and exit_status == ABORTED_BY_VOLUNTEER:
        return ResultOutcome.ABORTED
    return _OUTCOMES.get(outcome, ResultOutcome.NONE)


def result_code(outcome: ResultOutcome) -> str:
    """Return the code for a failed result of which nothing more is known."""
    return _CODES.get(outcome, "")


def _is_lost(outcome: WorkunitOutcome) -> bool:
    return not all(one.path.exists() for one in outcome.valid)
