"""Answers for BOINC's validator: what the server thinks, in exit codes.

BOINC asks about one result (`Judge.check`) or a pair (`Judge.compare`), from the start
each time a result comes in, and both ways round; so answers must be repeatable. It knows
three: yes (0), ask again (3), no (1). "No" to a check is an error of the host.

What that does to *a refusal by the volunteer's opt-in*. Told "ask again", BOINC would
issue a further copy, but count the refused one among the successes, stop with too many of
them, and once there is a canonical result a single one of them would hold up every later
result of the workunit. Told "yes", a refusal could become canonical. So BOINC is told
"no" and does the rest by itself: a further copy at once, to somebody else. What "no"
costs is put right: the workunit's bounds are raised by one error and one copy before
BOINC hears it, and the host gets back what BOINC's validator takes from its record
(`nudges`). Below the project's daily quota BOINC takes nothing for a "no". After
`refusal_cap` of them the workunit ends: nobody wants it.

*Quorum.* BOINC is content when a majority of `min_quorum` agrees. A researcher reads
the word as "all of them", as the embedded engine does: from three on, two results only
count as equal here when `min_quorum` of the workunit's results are equal to the first.

*Fatal* answers end the workunit here, and BOINC is told to ask again; it will be told
that the workunit is cancelled.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, insert, select

from stoilo.server.engines.interface import (
    Comparison,
    OutcomeKind,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)
from stoilo.server.engines.stock import boinctables, schema
from stoilo.server.engines.stock.resultrows import find_own, results_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from stoilo.server.engines.interface import ReceivedResult, Validation
    from stoilo.server.engines.stock.database import Database
    from stoilo.server.engines.stock.ending import Endings
    from stoilo.server.engines.stock.filestore import OutputName
    from stoilo.server.engines.stock.nudges import Nudges
    from stoilo.server.engines.stock.resultrows import OwnWorkunit, ResultRow, Uploads

__all__ = ["Answer", "Judge", "ask_check", "refusal_cap"]

log = logging.getLogger(__name__)
_REFUSALS_AT_LEAST: Final = 10
_ALL_FROM: Final = 3
"""Below, BOINC's majority of the quorum is all of it."""

_LOST: Final = ResultCheck(ResultVerdict.INVALID, "STO-E023", "the file is lost")
_FIRST_WAIT_S: Final = 60


class Answer(IntEnum):
    """What a validator script's exit status means to BOINC."""

    YES = 0
    NO = 1
    LATER = 3


_ANSWERS: Final = {
    ResultVerdict.VALID: Answer.YES,
    ResultVerdict.INVALID: Answer.NO,
    ResultVerdict.NOT_FOR_THIS_HOST: Answer.NO,
    ResultVerdict.INCONCLUSIVE: Answer.LATER,
    ResultVerdict.FATAL: Answer.LATER,
}


def refusal_cap(max_total: int) -> int:
    """Return how many refusals a workunit survives; the embedded engine's number."""
    return max(_REFUSALS_AT_LEAST, 2 * max_total)


def ask_check(validation: Validation, result: ReceivedResult) -> ResultCheck:
    """Ask the server; its own trouble is inconclusive."""
    try:
        return validation.check(result)
    except Exception:  # the server's code must not stop the engine
        log.exception("check of %s failed", result.name)
        return ResultCheck(ResultVerdict.INCONCLUSIVE)


class Judge:
    """Answers for one engine; thread-safe, keeps nothing that is not in the rows."""

    def __init__(
        self,
        database: Database,
        uploads: Uploads,
        endings: Endings,
        nudges: Nudges,
        validation: Validation,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._uploads = uploads
        self._endings = endings
        self._nudges = nudges
        self._validation = validation
        self._now = now

    def check(self, output: OutputName) -> Answer:
        """Answer for one result; raises ``STO-E003`` when the database refuses."""
        found = self._find(output)
        if found is None:
            return Answer.LATER
        own, row = found
        with self._database.read() as connection:
            said = _verdict(connection, row.name)
        if said is None:
            if own.outcome not in {None, OutcomeKind.CANONICAL}:
                return Answer.LATER  # it is being cancelled
            said = self._ask(own, row).verdict
        return _ANSWERS[said]

    def compare(self, left: OutputName, right: OutputName) -> Answer:
        """Answer for a pair of results that passed `check`; raises ``STO-E003``."""
        ours, theirs = self._find(left), self._find(right)
        if ours is None or theirs is None or ours[0] != theirs[0]:
            return Answer.LATER
        own = ours[0]
        if own.outcome not in {None, OutcomeKind.CANONICAL}:
            return Answer.LATER
        verdict = self._pair(own, ours[1], theirs[1])
        if verdict is PairVerdict.SAME and not self._enough(own, ours[1]):
            verdict = PairVerdict.DIFFERENT
        if verdict is PairVerdict.INCONCLUSIVE:
            self._ask_later(own)
        if verdict is PairVerdict.SAME:
            return Answer.YES
        return Answer.NO if verdict is PairVerdict.DIFFERENT else Answer.LATER

    def passed(self, own: OwnWorkunit) -> list[ReceivedResult]:
        """Return a workunit's results that pass the check, oldest first."""
        with self._database.read() as connection:
            rows = results_of(connection, workunit=own.boinc_id)
        found = []
        for row in rows:
            result = self._received(own, row) if row.in_doubt else None
            if result is not None:
                check = ask_check(self._validation, result)
                if check.verdict is ResultVerdict.VALID:
                    found.append(result)
        return found

    def _find(self, output: OutputName) -> tuple[OwnWorkunit, ResultRow] | None:
        """Return what a file belongs to; None for files of nobody's that we know."""
        with self._database.read() as connection:
            rows = results_of(connection, name=output.result)
            own = find_own(connection, boinc_id=rows[0].workunit) if rows else None
        if own is None or rows[0].output != output.name:
            log.warning("BOINC asks about %s, which is not ours", output.name)
            return None
        return own, rows[0]

    def _received(self, own: OwnWorkunit, row: ResultRow) -> ReceivedResult | None:
        try:
            return self._uploads.received(row, own.name, self._uploads.path_of(row))
        except OSError:
            return None

    def _ask(self, own: OwnWorkunit, row: ResultRow) -> ResultCheck:
        """Ask about a result and write down what is not plainly valid."""
        result = self._received(own, row)
        if result is not None:
            check = ask_check(self._validation, result)
        elif self._uploads.there:
            check = _LOST
        else:
            check = ResultCheck(ResultVerdict.INCONCLUSIVE)
        match check.verdict:
            case ResultVerdict.INVALID:
                self._note(own, row, check)
            case ResultVerdict.NOT_FOR_THIS_HOST:
                self._take_refusal(own, row, check)
            case ResultVerdict.FATAL:
                self._end_fatal(own, check.code, check.message)
            case ResultVerdict.INCONCLUSIVE:
                self._ask_later(own)
            case ResultVerdict.VALID:
                pass
        return check

    def _take_refusal(
        self, own: OwnWorkunit, row: ResultRow, check: ResultCheck
    ) -> None:
        """Write a refusal down, and let it cost nobody anything."""
        refusals = self._note(own, row, check)
        if refusals > refusal_cap(own.max_total):
            self._endings.end(
                own.row,
                OutcomeKind.TOO_MANY_REFUSALS,
                code=check.code,
                message=check.message,
                cancel=True,
            )
            return
        if not own.frozen:
            self._nudges.raise_bounds(
                own.boinc_id, own.max_error + refusals, own.max_total + refusals
            )

    def _note(self, own: OwnWorkunit, row: ResultRow, check: ResultCheck) -> int:
        """Write a verdict down; returns how many refusals the workunit has."""
        table = schema.verdicts
        with self._database.write() as connection:
            if _verdict(connection, row.name) is None:
                values = {
                    "result": row.name,
                    "workunit_id": own.row,
                    "verdict": check.verdict.value,
                    "code": check.code[:16],
                    "message": check.message[:500],
                    "judged_at": self._now(),
                }
                if check.verdict is ResultVerdict.NOT_FOR_THIS_HOST:
                    values |= _record(connection, row)
                connection.execute(insert(table).values(values))
            refused = ResultVerdict.NOT_FOR_THIS_HOST.value
            query = select(func.count()).where(
                table.c.workunit_id == own.row, table.c.verdict == refused
            )
            return int(connection.scalar(query) or 0)

    def _pair(self, own: OwnWorkunit, left: ResultRow, right: ResultRow) -> PairVerdict:
        """Ask about a pair; a file that cannot be read is our own trouble."""
        one, other = self._received(own, left), self._received(own, right)
        if one is None or other is None:
            return PairVerdict.INCONCLUSIVE
        try:
            said = self._validation.compare(one, other)
        except Exception:  # the server's code must not stop the engine
            log.exception("comparison of %s and %s failed", left.name, right.name)
            said = Comparison(PairVerdict.INCONCLUSIVE)
        if said.verdict is PairVerdict.FATAL:
            self._end_fatal(own, said.code, said.message)
        return said.verdict

    def _enough(self, own: OwnWorkunit, row: ResultRow) -> bool:
        """Say whether the whole quorum agrees with a result, itself included."""
        if own.min_quorum < _ALL_FROM or own.outcome is not None:
            return True
        with self._database.read() as connection:
            if _has_canonical(connection, own.boinc_id):
                return True
            others = results_of(connection, workunit=own.boinc_id)
        agree = sum(
            other.name == row.name or self._pair(own, row, other) is PairVerdict.SAME
            for other in others
            if other.in_doubt and self._is_valid(own, other)
        )
        return agree >= own.min_quorum

    def _is_valid(self, own: OwnWorkunit, row: ResultRow) -> bool:
        result = self._received(own, row)
        if result is None:
            return False
        return ask_check(self._validation, result).verdict is ResultVerdict.VALID

    def _end_fatal(self, own: OwnWorkunit, code: str, message: str) -> None:
        self._endings.end(
            own.row,
            OutcomeKind.VALIDATOR_FAILED,
            code=code,
            message=message,
            cancel=True,
        )

    def _ask_later(self, own: OwnWorkunit) -> None:
        """Remember to let BOINC ask again; each time after twice as long."""
        table = schema.asks
        with self._database.write() as connection:
            before = connection.execute(
                select(table).where(table.c.workunit_id == own.row)
            ).first()
            attempts = 0 if before is None else min(before.attempts + 1, 6)
            if before is not None and before.retry_at > self._now():
                return
            connection.execute(delete(table).where(table.c.workunit_id == own.row))
            connection.execute(
                insert(table).values(
                    workunit_id=own.row,
                    retry_at=self._now() + _FIRST_WAIT_S * 2**attempts,
                    attempts=attempts,
                )
            )


def _verdict(connection: Connection, result: str) -> ResultVerdict | None:
    """Return what was said about a result, None for nothing or "valid"."""
    table = schema.verdicts
    said = connection.scalar(select(table.c.verdict).where(table.c.result == result))
    return None if said is None else ResultVerdict(said)


def _record(connection: Connection, row: ResultRow) -> dict[str, object]:
    """Return what BOINC will take from a host's record for a refusal."""
    table = boinctables.host_app_versions
    found = connection.execute(
        select(table.c.max_jobs_per_day, table.c.consecutive_valid).where(
            table.c.host_id == row.host_id,
            table.c.app_version_id == row.app_version_id,
        )
    ).first()
    if found is None:
        return {}
    return {
        "host_id": row.host_id,
        "app_version_id": row.app_version_id,
        "jobs_per_day": found.max_jobs_per_day,
        "consecutive_valid": found.consecutive_valid,
        "owed": 1,
    }


def _has_canonical(connection: Connection, boinc_id: int) -> bool:
    table = boinctables.workunits
    return bool(
        connection.scalar(
            select(table.c.canonical_resultid).where(table.c.id == boinc_id)
        )
    )
