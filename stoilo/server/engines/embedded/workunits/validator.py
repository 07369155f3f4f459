"""BOINC's validator: the rules' questions to the server's validation, and the quorum (pure).

Outside of any transaction. BOINC's ``check_set`` takes a majority of the quorum for enough
(``min_quorum / 2 + 1``). Here all of `min_quorum` must agree, which is what a researcher
reads in the word.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.embedded.db.records import Check, Compare, Judge
from stoilo.server.engines.interface import (
    Comparison,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stoilo.server.engines.embedded.db.records import WorkunitView
    from stoilo.server.engines.interface import ReceivedResult, Validation

log = logging.getLogger(__name__)
INCONCLUSIVE_RETRY_S: Final = 5
# Should nobody say that a validator has run: its answers may have been forgotten
PENDING_RETRY_S: Final = 600


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of looking for a quorum."""

    canonical: str  # name of the canonical result, empty when no quorum agrees
    same: tuple[str, ...] = ()  # results that agree with it, itself included


def judge(
    names: tuple[str, ...], quorum: int, same: Callable[[str, str], bool]
) -> Judgement:
    """Look for a result that at least `quorum` results, itself included, agree with.

    Candidates are tried in order; `same` is called with the candidate first and is not
    assumed to be symmetric or transitive. With a quorum of 1 nobody is compared.
    """
    if quorum == 1:
        return Judgement(names[0], names[:1]) if names else Judgement("")
    for candidate in names:
        agree = [
            other for other in names if other == candidate or same(candidate, other)
        ]
        if len(agree) >= quorum:
            return Judgement(candidate, tuple(agree))
    return Judgement("")


@dataclass(frozen=True, slots=True)
class Question:
    """What the validator has to answer before a workunit can move on."""

    workunit_id: int  # row of the workunit
    view: WorkunitView
    actions: Sequence[Check | Judge | Compare]
    results: Mapping[str, ReceivedResult]  # the files, by result name


@dataclass(slots=True)
class Answers:
    """The validator's answers to a `Question`."""

    workunit_id: int  # row of the workunit
    # verdicts by result name
    checks: dict[str, ResultCheck] = field(default_factory=dict)
    judged: tuple[str, ...] = ()  # the set that was looked at for a quorum
    judgement: Judgement | None = None  # None where a comparison gave no answer
    # late results compared with the canonical one, and those of them that differ and are
    # a second opinion with the re-check that is doubted
    pairs: dict[str, PairVerdict] = field(default_factory=dict)
    opinions: dict[str, PairVerdict] = field(default_factory=dict)
    fatal: ResultCheck | None = None  # the workunit cannot succeed
    again_in_s: int = 0  # when to ask again what was not decided; 0: all was


class _Stop(Exception):
    """A comparison gave no answer, so that there is no judgement."""


def answer(question: Question, validation: Validation) -> Answers:
    """Return the validator's answers to one question."""
    asker = _Asker(question, validation)
    for action in question.actions:
        match action:
            case Check(name):
                asker.check(name)
            case Judge(names):
                asker.judge(names)
            case Compare(name):
                asker.compare_late(name)
        if asker.said.fatal is not None:
            return asker.said
    if asker.undecided:
        waits = asker.undecided == {PairVerdict.PENDING.value}
        asker.said.again_in_s = PENDING_RETRY_S if waits else INCONCLUSIVE_RETRY_S
    return asker.said


class _Asker:
    """Puts one question; the server's own trouble makes an answer inconclusive."""

    def __init__(self, question: Question, validation: Validation) -> None:
        self._view, self._results = question.view, question.results
        self._validation = validation
        self.said = Answers(question.workunit_id)
        self.undecided: set[str] = set()

    def check(self, name: str) -> None:
        """Ask for the verdict about one result."""
        result = self._results.get(name)
        try:
            if result is None or not result.path.exists():
                lost = "the file is lost"
                said = ResultCheck(ResultVerdict.INVALID, "STO-E023", lost)
            else:
                said = self._validation.check(result)
        except Exception:  # the server's code must not stop the engine
            log.exception("check of %s failed", name)
            said = ResultCheck(ResultVerdict.INCONCLUSIVE)
        self.said.checks[name] = said
        if said.verdict.undecided:
            self.undecided.add(said.verdict.value)
        if said.verdict is ResultVerdict.FATAL:
            self.said.fatal = said

    def judge(self, names: tuple[str, ...]) -> None:
        """Look for a quorum."""
        self.said.judged = names
        quorum = self._view.in_force.min_quorum
        try:
            self.said.judgement = judge(names, quorum, self._same)
        except _Stop:
            pass

    def compare_late(self, name: str) -> None:
        """Compare what came after the end."""
        late = next(one for one in self._view.results if one.name == name)
        doubt = self._view.doubt
        pair = self.said.pairs[name] = self._compare(self._view.canonical, name)
        if pair is PairVerdict.DIFFERENT and doubt and late.recheck:
            self.said.opinions[name] = self._compare(doubt, name)

    def _same(self, left: str, right: str) -> bool:
        said = self._pair(self._results[left], self._results[right])
        if said.verdict is PairVerdict.FATAL:
            self.said.fatal = ResultCheck(ResultVerdict.FATAL, said.code, said.message)
        if said.verdict in {PairVerdict.SAME, PairVerdict.DIFFERENT}:
            return said.verdict is PairVerdict.SAME
        raise _Stop

    def _compare(self, known: str, name: str) -> PairVerdict:
        before, result = self._results.get(known), self._results.get(name)
        if before is None or result is None or not before.path.exists():
            return PairVerdict.FATAL  # nothing is left to compare
        return self._pair(before, result).verdict

    def _pair(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        try:
            said = self._validation.compare(left, right)
        except Exception:  # the server's code must not stop the engine
            log.exception("comparison of %s and %s failed", left.name, right.name)
            said = Comparison(PairVerdict.INCONCLUSIVE)
        if said.verdict.undecided:
            self.undecided.add(said.verdict.value)
        return said
