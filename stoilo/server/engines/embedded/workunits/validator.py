"""BOINC's validator: the rules' questions to the server's validation, and the quorum (pure).

Outside of any transaction. BOINC's ``check_set`` takes a majority of the quorum for enough
(``min_quorum / 2 + 1``). Here all of `min_quorum` must agree, which is what a researcher
reads in the word.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.server.engines.interface import (
    Comparison,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.engines.interface import ReceivedResult, Validation


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


log = logging.getLogger(__name__)
_WAITS, _TROUBLE = PairVerdict.PENDING, PairVerdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Question:
    """What the validator has to answer before a workunit can move on."""

    workunit_id: int  # row of the workunit
    checks: tuple[str, ...]  # results whose results are to be judged by themselves
    judge: tuple[str, ...]  # results among which a quorum is to be looked for
    pairs: tuple[str, ...]  # results to be compared with the canonical one
    canonical: str  # the canonical result, empty while there is none
    quorum: int  # how many must agree
    results: dict[str, ReceivedResult]  # the files, by result name
    # the re-check that differed from the canonical result, empty without one
    doubt: str = ""
    opinions: tuple[str, ...] = ()  # those of `pairs` that are a second opinion on it


@dataclass(frozen=True, slots=True)
class Answers:
    """The validator's answers to a `Question`."""

    workunit_id: int  # row of the workunit
    # verdicts by result name
    checks: dict[str, ResultCheck] = field(default_factory=dict)
    judged: tuple[str, ...] = ()  # the results that were compared, empty if none
    # the outcome of comparing, None when it could not be completed
    judgement: Judgement | None = None
    # how results compare with the canonical one
    pairs: dict[str, PairVerdict] = field(default_factory=dict)
    # how second opinions compare with the re-check that is in doubt; only where they
    # differ from the canonical one
    opinions: dict[str, PairVerdict] = field(default_factory=dict)
    fatal: ResultCheck | None = None  # the answer that ends the workunit, None without
    pending: bool = False  # why there is no judgement: validators must run first


class _Interrupted(Exception):
    """A comparison could not be completed; `fatal` when it never can be."""

    def __init__(self, fatal: ResultCheck | None, *, pending: bool = False) -> None:
        super().__init__()
        self.fatal = fatal
        self.pending = pending


def answer(question: Question, validation: Validation) -> Answers:
    """Return the validator's answers to one question."""
    row = question.workunit_id
    checks: dict[str, ResultCheck] = {}
    for name in question.checks:
        checks[name] = _check(question, name, validation)
        if checks[name].verdict is ResultVerdict.FATAL:
            return Answers(row, checks, fatal=checks[name])
    pairs = {
        name: _compare(question, question.canonical, name, validation)
        for name in question.pairs
    }
    opinions = {
        name: _compare(question, question.doubt, name, validation)
        for name in question.opinions
        if pairs[name] is PairVerdict.DIFFERENT
    }
    if not question.judge:
        return Answers(row, checks, pairs=pairs, opinions=opinions)
    try:
        judgement = _judge(question, validation)
    except _Interrupted as stop:
        waits = stop.pending
        return Answers(row, checks, question.judge, fatal=stop.fatal, pending=waits)
    return Answers(row, checks, question.judge, judgement)


def is_unsure(answers: Answers) -> bool:
    """Say whether the validator must be asked again later."""
    if answers.fatal is not None:
        return False
    return any(said.undecided for said in _said(answers)) or bool(
        answers.judged and answers.judgement is None
    )


def is_pending(answers: Answers) -> bool:
    """Say whether the engine will be told when to ask again, and has no other reason to."""
    unsure = {said.value for said in _said(answers) if said.undecided}
    if answers.judged and answers.judgement is None:
        unsure.add((_WAITS if answers.pending else _TROUBLE).value)
    return unsure == {_WAITS.value}


def _said(answers: Answers) -> list[ResultVerdict | PairVerdict]:
    return [
        *(check.verdict for check in answers.checks.values()),
        *answers.pairs.values(),
        *answers.opinions.values(),
    ]


def _check(question: Question, name: str, validation: Validation) -> ResultCheck:
    """Return the verdict about one result; the server's own trouble is inconclusive."""
    result = question.results.get(name)
    if result is None or not result.path.exists():
        return ResultCheck(ResultVerdict.INVALID, "STO-E023", "the file is lost")
    try:
        return validation.check(result)
    except Exception:  # the server's code must not stop the engine
        log.exception("check of %s failed", name)
        return ResultCheck(ResultVerdict.INCONCLUSIVE)


def _judge(question: Question, validation: Validation) -> Judgement:
    """Look for a quorum; raises `_Interrupted` when a comparison gives no answer."""

    def same(left: str, right: str) -> bool:
        results = question.results
        verdict = _pair(results[left], results[right], validation)
        if verdict.verdict.undecided:
            pending = verdict.verdict is PairVerdict.PENDING
            raise _Interrupted(None, pending=pending)
        if verdict.verdict is PairVerdict.FATAL:
            fatal = ResultCheck(ResultVerdict.FATAL, verdict.code, verdict.message)
            raise _Interrupted(fatal)
        return verdict.verdict is PairVerdict.SAME

    return judge(question.judge, question.quorum, same)


def _compare(
    question: Question, known: str, name: str, validation: Validation
) -> PairVerdict:
    before = question.results.get(known)
    result = question.results.get(name)
    if before is None or result is None or not before.path.exists():
        return PairVerdict.FATAL  # nothing is left to compare
    return _pair(before, result, validation).verdict


def _pair(
    left: ReceivedResult, right: ReceivedResult, validation: Validation
) -> Comparison:
    """Compare two results; the server's own trouble is inconclusive."""
    try:
        return validation.compare(left, right)
    except Exception:  # the server's code must not stop the engine
        log.exception("comparison of %s and %s failed", left.name, right.name)
        return Comparison(PairVerdict.INCONCLUSIVE)
