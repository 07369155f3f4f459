"""What BOINC's transitioner, validator and assimilator daemons do, step by step.

A step asks the rules, puts their questions to the server's validator on a few threads,
writes the answers and delivers outcomes. Nothing is kept between two steps but names that
somebody asked to look at, so a crash at any point loses nothing: what was not written is
asked again.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.server.engines.embedded.workunits.validator import answer
from stoilo.server.engines.interface import NotDecidedYet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.engines.embedded.workunits.store import Store
    from stoilo.server.engines.embedded.workunits.validator import Answers, Question
    from stoilo.server.engines.interface import Assimilator, Validation, WorkunitOutcome

log = logging.getLogger(__name__)

# Workunits in one transaction: hosts that call wait as long for the write lock.
MOVED_TOGETHER: Final = 16


class Mover:
    """Moves workunits; `step` is for one thread, `ask_again` for any."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], int],  # s since 1970
        *,
        batch: int,  # workunits moved in one step
        validators: int,  # questions asked at the same time, once started
    ) -> None:
        self._store = store
        self._now = now
        self._batch = batch
        self._validators = validators
        self._answered: SimpleQueue[str] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Begin to ask several questions at a time; what waits is due at once."""
        self._store.retry_outcomes()
        self._pool = ThreadPoolExecutor(
            self._validators, thread_name_prefix="stoilo-validate"
        )

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
        self._hasten()
        due = self._store.due(now, self._batch)
        for at in range(0, len(due), MOVED_TOGETHER):
            self._move(due[at : at + MOVED_TOGETHER], validation)
        outcomes = self._store.outcomes(now, self._batch)
        taken = [one.workunit for one in outcomes if self._deliver(one, assimilator)]
        self._store.taken(taken, self._now())
        return bool(due), bool(outcomes)

    def _move(self, due: Sequence[int], validation: Validation) -> None:
        """Move workunits until all of them wait for hosts, or have ended."""
        questions = self._store.advance(due, (), self._now())
        while questions:
            answers = self._ask(questions, validation)
            for one in answers:
                if one.again_in_s:
                    self._store.postpone(one.workunit_id, self._now() + one.again_in_s)
            rows = [one.workunit_id for one in answers if not one.again_in_s]
            questions = self._store.advance(rows, answers, self._now())

    def _hasten(self) -> None:
        """Look again at what was told of; in the thread that may just have put it off."""
        count = min(self._answered.qsize(), self._batch)
        names = {self._answered.get() for _ in range(count)}
        try:
            if names:
                self._store.hasten(names)
        except StoiloError:  # the database is away; the names are not
            for name in names:
                self._answered.put(name)
            raise

    def _ask(self, questions: list[Question], validation: Validation) -> list[Answers]:
        if self._pool is None:
            return [answer(question, validation) for question in questions]
        return list(
            self._pool.map(lambda question: answer(question, validation), questions)
        )

    def _deliver(self, outcome: WorkunitOutcome, assimilator: Assimilator) -> bool:
        """Hand one outcome to the server, which may hear it twice; say if it took it.

        It comes again until it was taken and that is noted.
        """
        try:
            assimilator.assimilate(outcome)
        except Exception as error:  # the server's code must not stop the engine
            if not isinstance(error, NotDecidedYet):
                log.exception("outcome of %s was not taken", outcome.workunit)
            self._store.refused(outcome.workunit, self._now())
            return False
        return True
