"""Answers for BOINC's validator: what the server thinks, in exit codes.

BOINC asks about one result (`check`) or a pair (`compare`), from the start each time a
result comes in, and both ways round; so answers must be repeatable. It knows three: yes
(0), ask again (3), no (1). "No" to a check is an error of the host.

What that does to *a refusal by the volunteer's opt-in*. Told "ask again", BOINC would
issue a further result, but count the refused one among the successes, stop with too many of
them, and once there is a canonical result a single one of them would hold up every later
result of the workunit. Told "yes", a refusal could become canonical. So BOINC is told
"no" and does the rest by itself: a further result at once, to somebody else. What "no"
costs is put right: the workunit's bounds are raised by one error and one result before
BOINC hears it, and the host gets back what BOINC's validator takes from its record
(`boinc_tables`). Below the project's daily quota BOINC takes nothing for a "no". After
`refusal_cap` of them the workunit ends: nobody wants it.

*Quorum.* BOINC is content when a majority of `min_quorum` agrees. A researcher reads
the word as "all of them", as the embedded engine does: from three on, two results only
count as equal here when `min_quorum` of the workunit's results are equal to the first.

*What is judged* is a copy of ours (`kept`), and the digest of what passed is written
down before BOINC hears "yes": a host can change its file at any time, but not the result.
A file that cannot be read, or kept, just now is our own trouble; one that is not there is
its host's error. Once there is a canonical result, nobody pays for its file: a late
result that passes is let through when there is nothing left to compare it with.

*Slow validators.* BOINC asks about one result of an app after the other, and waits. So a
validator that has not run soon is not waited for, that of an account that has used much
not at all: BOINC is told "ask again", and asked to ask once there is an answer.

*Fatal* answers end the workunit here, and BOINC is told to ask again; it will be told
that the workunit is cancelled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.errors import InternalError
from stoilo.server.engines.interface import (
    OutcomeKind,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)
from stoilo.server.engines.questions import (
    LOST,
    ask_check,
    ask_pair,
    refusal_cap,
)
from stoilo.server.engines.stock import verdicts
from stoilo.server.engines.stock.project import boinc_tables
from stoilo.server.engines.stock.project.boinc_tables import (
    find_own,
    note_boinc_row,
    raise_bounds,
    results_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.engines.interface import (
        Comparison,
        ReceivedResult,
        Validation,
    )
    from stoilo.server.engines.stock.outcomes import Outcomes
    from stoilo.server.engines.stock.project.boinc_tables import (
        OwnWorkunit,
        ResultRow,
    )
    from stoilo.server.engines.stock.project.database import Database
    from stoilo.server.engines.stock.project.directory import OutputName
    from stoilo.server.engines.stock.verdicts import Said


log = logging.getLogger(__name__)
# Below, BOINC's majority of the quorum is all of it.
_ALL_FROM: Final = 3

# Outcomes of workunits whose results are judged.
_LIVE: Final = {None, OutcomeKind.CANONICAL}

_TOO_LONG: Final = ResultCheck(
    ResultVerdict.INVALID, "STO-R081", "the file is longer than a result may be"
)
_CHANGED: Final = ResultCheck(
    ResultVerdict.INVALID, "STO-R081", "the file changed after it was judged"
)


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
    ResultVerdict.PENDING: Answer.LATER,
    ResultVerdict.FATAL: Answer.LATER,
}


# How long one of BOINC's scripts waits for a validator, s.
PATIENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A result that is asked about, and what was said of it before."""

    own: OwnWorkunit
    row: ResultRow
    said: Said | None


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a result: what it is worth, and the bytes if there are any."""

    check: ResultCheck
    result: ReceivedResult | None = None

    @property
    def verdict(self) -> ResultVerdict:
        """Return what it is worth."""
        return self.check.verdict


@dataclass(frozen=True, slots=True)
class Passed:
    """Results that passed."""

    valid: tuple[ReceivedResult, ...]  # oldest first
    undecided: int  # how many others could not be judged just now


class ScriptValidator:
    """Answers for one engine; thread-safe, keeps nothing that is not in the rows."""

    def __init__(
        self,
        database: Database,
        outcomes: Outcomes,
        validation: Validation,
        now: Callable[[], int],
    ) -> None:
        self._database = database
        self._outcomes = outcomes
        self._validation = validation
        self._now = now

    def check(self, output: OutputName) -> Answer:
        """Answer for one result; raises ``STO-R030`` when the database refuses."""
        cases = self._find(output)
        if not cases:
            return Answer.LATER
        (case,) = cases
        if case.own.outcome not in _LIVE:  # it is being cancelled
            no = case.said is not None and case.said.verdict is not ResultVerdict.VALID
            return Answer.NO if no else Answer.LATER
        if case.row.id == self._canonical(case.own):
            return Answer.YES  # judged before; BOINC asks because of another one
        look = self._look(case)
        self._settle(case, look)
        if look.verdict is ResultVerdict.PENDING:  # told of before that was written?
            look = self._look(case)
            self._settle(case, look)
        return _ANSWERS[look.verdict]

    def compare(self, left: OutputName, right: OutputName) -> Answer:
        """Answer for a pair of results that passed `check`; raises ``STO-R030``."""
        cases = self._find(left, right)
        if not cases or cases[0].own.outcome not in _LIVE:
            return Answer.LATER
        one, other = cases
        verdict = self._agreement(one, other)
        if verdict.undecided:
            self._ask_later(one.own)
        if verdict is PairVerdict.PENDING:  # told of before that was written?
            verdict = self._agreement(one, other)
        if verdict is PairVerdict.SAME:
            return Answer.YES
        return Answer.NO if verdict is PairVerdict.DIFFERENT else Answer.LATER

    def _agreement(self, one: _Case, other: _Case) -> PairVerdict:
        verdict = self._pair(one, other)
        return self._enough(one) if verdict is PairVerdict.SAME else verdict

    def hold(self, own: OwnWorkunit, rows: Sequence[ResultRow]) -> None:
        """Keep results' files, as far as they are there: BOINC may delete its own then.

        Raises:
            InternalError: ``STO-R030``: one cannot be read or kept just now.
        """
        try:
            for row in rows:
                self._outcomes.kept.result_of(own, row)
        except OSError as error:
            raise InternalError(
                "STO-R030", f"a result could not be kept (errno {error.errno})"
            ) from error

    def passed(self, own: OwnWorkunit, rows: Sequence[ResultRow]) -> Passed:
        """Return those of a workunit's results that pass the check."""
        looks = [self._look(case) for case in self._cases(own, rows)]
        valid = [
            look.result
            for look in looks
            if look.verdict is ResultVerdict.VALID and look.result is not None
        ]
        undecided = sum(look.verdict.undecided for look in looks)
        return Passed(tuple(valid), undecided)

    def _find(self, *outputs: OutputName) -> list[_Case]:
        """Return what files of one workunit belong to; empty for any that is not ours."""
        wanted = [one.result for one in outputs]
        with self._database.read() as connection:
            rows = {one.name: one for one in results_of(connection, names=wanted)}
            found = [rows[one.result] for one in outputs if one.result in rows]
            numbers = {row.workunit for row in found}
            number = min(numbers, default=0)
            own = find_own(connection, boinc_id=number) if number else None
            said = verdicts.find_said(connection, wanted)
        ours = [row.output for row in found] == [one.name for one in outputs]
        if own is None or len(numbers) > 1 or not ours:
            log.warning("BOINC asks about %s, not ours", ", ".join(wanted))
            return []
        own = note_boinc_row(self._database, own, number)
        return [_Case(own, row, said.get(row.name)) for row in found]

    def _cases(self, own: OwnWorkunit, rows: Sequence[ResultRow]) -> list[_Case]:
        with self._database.read() as connection:
            said = verdicts.find_said(connection, [row.name for row in rows])
        return [_Case(own, row, said.get(row.name)) for row in rows]

    def _canonical(self, own: OwnWorkunit) -> int:
        table = boinc_tables.workunits
        query = select(table.c.canonical_resultid).where(table.c.id == own.boinc_id)
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)

    def _look(self, case: _Case) -> _Look:
        """Look at a result; changes nothing but that it is kept."""
        row, said = case.row, case.said
        if said is not None and said.verdict is not ResultVerdict.VALID:
            return _Look(ResultCheck(said.verdict, said.code, said.message))
        try:
            result = self._outcomes.kept.result_of(case.own, row)
        except OSError as error:
            log.warning("%s cannot be read or kept (errno %s)", row.name, error.errno)
            return _Look(ResultCheck(ResultVerdict.INCONCLUSIVE))
        if result is None:
            return _Look(LOST)
        if result.size > row.max_bytes:
            return _Look(_TOO_LONG)
        if said is None:
            return _Look(ask_check(self._validation, result, PATIENCE_S), result)
        same = said.digest == result.digest
        return _Look(ResultCheck(ResultVerdict.VALID) if same else _CHANGED, result)

    def _settle(self, case: _Case, look: _Look) -> None:
        match look.verdict:
            case ResultVerdict.VALID:
                if case.said is None and look.result is not None:
                    with self._database.write() as connection:
                        verdicts.note_passed(connection, case.own.row, look.result)
            case ResultVerdict.INVALID | ResultVerdict.NOT_FOR_THIS_HOST:
                self._take_no(case, look.check)
            case ResultVerdict.FATAL:
                self._end(case.own, OutcomeKind.VALIDATOR_FAILED, look.check)
            case ResultVerdict.INCONCLUSIVE | ResultVerdict.PENDING:
                self._ask_later(case.own)

    def _take_no(self, case: _Case, check: ResultCheck) -> None:
        """Write a "no" down; a refusal costs nobody anything. May be repeated."""
        own, refusals = case.own, 0
        cap = refusal_cap(own.max_total)
        with self._database.write() as connection:
            verdicts.note_verdict(connection, own.row, case.row, check)
            if check.verdict is ResultVerdict.NOT_FOR_THIS_HOST:
                refusals = verdicts.count_refusals(connection, own.row)
            if 0 < refusals <= cap:
                raise_bounds(connection, own, refusals)
        self._outcomes.kept.drop(own.row, case.row.name)  # of no more use
        if refusals > cap:
            self._end(own, OutcomeKind.TOO_MANY_REFUSALS, check)

    def _pair(self, left: _Case, right: _Case) -> PairVerdict:
        """Ask about a pair; one that cannot be compared is our own trouble."""
        looks = {case.row.id: self._look(case) for case in (left, right)}
        good = [
            one.result
            for one in looks.values()
            if one.verdict is ResultVerdict.VALID and one.result is not None
        ]
        both = len(looks) == len(good)
        canonical = 0 if both else self._canonical(left.own)
        for case in (left, right):
            if case.row.id != canonical:  # that one is not judged any more
                self._settle(case, looks[case.row.id])
        if both:
            return self._compare(left.own, good[0], good[-1])
        gone = canonical in looks and looks[canonical].verdict is ResultVerdict.INVALID
        if gone and good and left.own.outcome is OutcomeKind.CANONICAL:
            log.warning("nothing is left to compare %s with", good[0].name)
            return PairVerdict.SAME
        return PairVerdict.INCONCLUSIVE

    def _compare(
        self, own: OwnWorkunit, one: ReceivedResult, other: ReceivedResult
    ) -> PairVerdict:
        said = ask_pair(self._validation, one, other, PATIENCE_S)
        if said.verdict is PairVerdict.FATAL:
            self._end(own, OutcomeKind.VALIDATOR_FAILED, said)
        return said.verdict

    def _enough(self, one: _Case) -> PairVerdict:
        own = one.own
        if own.min_quorum < _ALL_FROM or own.outcome is not None:
            return PairVerdict.SAME
        if self._canonical(own):
            return PairVerdict.SAME
        with self._database.read() as connection:
            rows = results_of(connection, workunit=own.boinc_id)
        others = [row for row in rows if row.in_doubt and row.name != one.row.name]
        said = [self._agrees(one, other) for other in self._cases(own, others)]
        agree = 1 + said.count(PairVerdict.SAME)
        if agree >= own.min_quorum:
            return PairVerdict.SAME
        unsure = [verdict for verdict in said if verdict.undecided]
        if agree + len(unsure) >= own.min_quorum:
            return unsure[0]
        return PairVerdict.DIFFERENT

    def _agrees(self, one: _Case, other: _Case) -> PairVerdict:
        """Compare a result with another that may not have passed."""
        look = self._look(other)
        match look.verdict:
            case ResultVerdict.VALID:
                return self._pair(one, other)
            case ResultVerdict.INCONCLUSIVE | ResultVerdict.PENDING:
                return PairVerdict(look.verdict.value)
            case _:
                self._settle(other, look)
                return PairVerdict.DIFFERENT

    def _end(
        self, own: OwnWorkunit, kind: OutcomeKind, said: ResultCheck | Comparison
    ) -> None:
        code, message = said.code, said.message
        self._outcomes.end(own.row, kind, code=code, message=message, cancel=True)

    def _ask_later(self, own: OwnWorkunit) -> None:
        """Remember to let BOINC ask again; each time after twice as long."""
        with self._database.write() as connection:
            verdicts.ask_later(connection, own.row, self._now())
