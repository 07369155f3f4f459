"""What BOINC's transitioner, validator and assimilator daemons do, step by step.

A step asks the rules, puts their questions to the server's validator on a few threads, outside
of any transaction, writes the answers and delivers outcomes. Nothing is kept between two steps
but names that somebody asked to look at, so a crash at any point loses nothing: what was not
written is asked again. BOINC's ``check_set`` takes a majority of the quorum for enough
(``min_quorum / 2 + 1``). Here all of `min_quorum` must agree, which is what a researcher reads
in the word.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.embedded.db.records import (
    Answers,
    Check,
    Compare,
    Judge,
    Judgement,
    Question,
)
from stoilo.server.engines.interface import PairVerdict, ResultCheck, ResultVerdict
from stoilo.server.engines.questions import (
    LOST,
    ask_check,
    ask_pair,
    deliver,
    take_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.engines.embedded.workunits.store import Store
    from stoilo.server.engines.interface import (
        Assimilator,
        Comparison,
        ReceivedResult,
        Validation,
        WorkunitOutcome,
    )

INCONCLUSIVE_RETRY_S: Final = 5
# Should nobody say that a validator has run: its answers may have been forgotten
PENDING_RETRY_S: Final = 600
# Workunits in one transaction: hosts that call wait as long for the write lock.
MOVED_TOGETHER: Final = 16
# Workunits moved, and outcomes delivered, in one step
BATCH: Final = 64
# Questions asked at the same time
ASKED_AT_ONCE: Final = 2
# How long all questions of a step wait for validators that run, s: most take less, and an
# answer that comes later costs two more transactions
PATIENCE_S: Final = 0.05


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


class _Stop(Exception):
    """A comparison gave no answer, so that there is no judgement."""


def answer(question: Question, validation: Validation, until: float = 0.0) -> Answers:
    """Return the validator's answers to one question, waited for until then, monotonic s."""
    asker = _Asker(question, validation, until)
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

    def __init__(
        self, question: Question, validation: Validation, until: float
    ) -> None:
        self._view, self._results = question.view, question.results
        self._validation = validation
        self._until = until
        self.said = Answers(question.workunit_id)
        self.undecided: set[str] = set()

    def check(self, name: str) -> None:
        """Ask for the verdict about one result."""
        result = self._results.get(name)
        said, patience_s = LOST, self._until - time.monotonic()
        if result is not None:
            said = ask_check(self._validation, result, patience_s)
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
        patience_s = self._until - time.monotonic()
        said = ask_pair(self._validation, left, right, patience_s)
        if said.verdict.undecided:
            self.undecided.add(said.verdict.value)
        return said


class Mover:
    """Moves workunits; `step` is for one thread, `ask_again` for any.

    Attributes:
        goes_on: whether the last step left something that is due already.
    """

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now  # s since 1970
        self._answered: SimpleQueue[str] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self.goes_on = False

    def start(self) -> None:
        """Begin to ask several questions at a time; what waits is due at once."""
        self._store.retry_outcomes()
        self._pool = ThreadPoolExecutor(ASKED_AT_ONCE, "stoilo-validate")

    def close(self) -> None:
        """Return when no question is being asked."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def ask_again(self, name: str) -> None:
        """Look at a workunit, by name, in the next step."""
        self._answered.put(name)

    def step(
        self, validation: Validation, assimilator: Assimilator
    ) -> tuple[bool, bool]:
        """Move what can be moved; return whether anything was, and was delivered."""
        now = self._now()
        # in the thread that may just have put off what was told of
        take_names(self._answered, BATCH, self._store.hasten)
        due = self._store.due(now, BATCH)
        for at in range(0, len(due), MOVED_TOGETHER):
            self._move(due[at : at + MOVED_TOGETHER], validation)
        outcomes = self._store.outcomes(now, BATCH)
        taken = [one.workunit for one in outcomes if self._deliver(one, assimilator)]
        lingers = self._store.taken(taken, self._now())
        self.goes_on = lingers or BATCH in {len(due), len(outcomes)}
        return bool(due), bool(outcomes)

    def _move(self, due: Sequence[int], validation: Validation) -> None:
        """Move workunits until all of them wait for hosts, or have ended."""
        questions = self._store.advance(due, (), self._now())
        while questions:
            answers = self._ask(questions, validation)
            questions = self._store.advance((), answers, self._now())

    def _ask(self, questions: list[Question], validation: Validation) -> list[Answers]:
        if self._pool is None:
            return [answer(question, validation) for question in questions]
        until = time.monotonic() + PATIENCE_S
        return list(
            self._pool.map(lambda one: answer(one, validation, until), questions)
        )

    def _deliver(self, outcome: WorkunitOutcome, assimilator: Assimilator) -> bool:
        """Hand one outcome to the server, which may hear it twice; say if it took it.

        It comes again until it was taken and that is noted.
        """
        taken = deliver(outcome, assimilator)
        if not taken:
            self._store.refused(outcome.workunit, self._now())
        return taken
