"""What BOINC's assimilator tells: a workunit's end, taken durably before it is answered.

Also what it failed to tell: a workunit that BOINC holds for assimilated and we for open
(our tables came back from a backup, or somebody answered in our place) is taken from
BOINC's tables, and one that is gone from them is made anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import select, update

from stoilo.server.engines.interface import CopyOutcome, OutcomeKind
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.boinctables import StageState, Validate
from stoilo.server.engines.stock.outcomes import copy_code, copy_outcome, kind_of
from stoilo.server.engines.stock.resultrows import find_own, results_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.interface import ReceivedResult
    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.ending import Endings
    from stoilo.server.engines.stock.judging import Judge
    from stoilo.server.engines.stock.resultrows import OwnWorkunit, ResultRow, Uploads

__all__ = ["Listener"]

log = logging.getLogger(__name__)
_AT_ONCE: Final = 500
_FAILED: Final = {
    CopyOutcome.CLIENT_ERROR,
    CopyOutcome.ABORTED,
    CopyOutcome.NO_REPLY,
    CopyOutcome.INVALID,
}
_LOST: Final = ("STO-E023", "the canonical result's file is lost")


class Listener:
    """Takes ends from BOINC; idempotent."""

    def __init__(
        self, database: Database, uploads: Uploads, endings: Endings, judge: Judge
    ) -> None:
        self._database = database
        self._uploads = uploads
        self._endings = endings
        self._judge = judge

    def hear(self, *, name: str = "", boinc_id: int = 0) -> None:
        """Take a workunit's end; one that is not ours, or has ended, changes nothing.

        Raises:
            InternalError: ``STO-E003``; nothing was taken, to be told again.
        """
        with self._database.read() as connection:
            own = find_own(connection, name=name, boinc_id=boinc_id)
            if own is None:
                log.warning("BOINC tells of workunit %s, not ours", name or boinc_id)
                return
            if own.outcome is not None:
                return
            there = _workunit(connection, own.name)
            results = () if there is None else results_of(connection, workunit=there.id)
        if there is not None and there.canonical_resultid:
            self._take_canonical(own, there.canonical_resultid, results)
        elif there is not None and there.error_mask:
            self._take_error(own, there.error_mask, results)
        else:
            log.warning("BOINC tells of workunit %s, which goes on", own.name)

    def hear_what_was_missed(self) -> bool:
        """Take what BOINC holds for told; make anew what it has lost."""
        table, there = schema.workunits, boinctables.workunits
        query = (
            select(table.c.name, there.c.id, there.c.assimilate_state)
            .outerjoin(there, there.c.id == table.c.boinc_id)
            .where(
                table.c.outcome.is_(None),
                table.c.boinc_id != 0,
                there.c.id.is_(None) | (there.c.assimilate_state == StageState.DONE),
            )
            .limit(_AT_ONCE)
        )
        with self._database.read() as connection:
            found = connection.execute(query).all()
        for row in found:
            if row.id is None:
                self._forget_made(row.name)
            else:
                log.warning("workunit %s ended unheard", row.name)
                self.hear(name=row.name)
        return bool(found)

    def _forget_made(self, name: str) -> None:
        log.error("workunit %s is gone from BOINC's database: made anew", name)
        table = schema.workunits
        with self._database.write() as connection:
            connection.execute(
                update(table)
                .where(table.c.name == name, table.c.outcome.is_(None))
                .values(boinc_id=0)
            )

    def _take_canonical(
        self, own: OwnWorkunit, canonical: int, results: Sequence[ResultRow]
    ) -> None:
        valid = [
            found
            for row in results
            if row.validate_state == Validate.VALID or row.id == canonical
            if (found := self._received(own, row)) is not None
        ]
        names = {row.name for row in results if row.id == canonical}
        chosen = next((one for one in valid if one.name in names), None)
        if chosen is None and not self._uploads.there:
            raise self._uploads.trouble()
        if chosen is None:
            code, message = _LOST
            kind = OutcomeKind.TOO_MANY_ERRORS
            self._endings.end(own.row, kind, code=code, message=message)
            return
        kind = OutcomeKind.CANONICAL
        self._endings.end(own.row, kind, canonical=chosen.name, valid=valid)

    def _take_error(
        self, own: OwnWorkunit, mask: int, results: Sequence[ResultRow]
    ) -> None:
        kind = kind_of(mask, frozen=own.frozen)
        with self._database.read() as connection:
            code, message = _last_failure(connection, results)
        valid = [] if kind is OutcomeKind.CANCELLED else self._judge.passed(own)
        self._endings.end(own.row, kind, code=code, message=message, valid=valid)

    def _received(self, own: OwnWorkunit, row: ResultRow) -> ReceivedResult | None:
        try:
            return self._uploads.received(row, own.name, self._uploads.path_of(row))
        except OSError:
            return None


def _workunit(connection: Connection, name: str) -> Row | None:  # type: ignore[type-arg]  # a row of BOINC's
    table = boinctables.workunits
    return connection.execute(
        select(table.c.id, table.c.canonical_resultid, table.c.error_mask).where(
            table.c.name == name
        )
    ).first()


def _last_failure(
    connection: Connection, results: Sequence[ResultRow]
) -> tuple[str, str]:
    """Return code and message of the last copy that failed, empty without one."""
    table = schema.verdicts
    for row in reversed(results):
        ended = copy_outcome(row.outcome, row.validate_state, row.exit_status)
        if ended not in _FAILED:
            continue
        said = connection.execute(
            select(table.c.code, table.c.message).where(table.c.result == row.name)
        ).first()
        return (said.code, said.message) if said else (copy_code(ended), "")
    return "", ""
