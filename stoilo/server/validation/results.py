"""The engine's questions about results, answered (thesis §7.2, design §1.8)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from stoilo.core.errors import InternalError, TrustError, UserCodeError
from stoilo.core.types import RunStatus, TaskState
from stoilo.executor.verifier.workunit import Disposition
from stoilo.server.db import rows
from stoilo.server.engines.interface import (
    Comparison,
    NotDecidedYet,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
)
from stoilo.server.validation.answers import (
    Answer,
    AnswerCache,
    ItemAnswer,
    check_header,
    known_code,
    parse_answer,
    read_result,
    same_items,
)
from stoilo.server.validation.docket import Docket, Matter
from stoilo.server.validation.validators import (
    Call,
    JudgeTrouble,
    SwappedProgram,
    ValidatorProgram,
    check_program,
    decide_default,
    decide_natively,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.executor.verifier.workunit import ResultHeader
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import ReceivedResult


QUICK = 4  # bytes of arrays that a native check may decode, for each of the value's
log = logging.getLogger(__name__)
_REJECTED = ItemAnswer(
    RunStatus.REFUSED,
    error_text="the init validator rejects the value",
    code="STO-R057",
)


def _summarise(answer: Answer, task: TaskRow) -> ResultCheck:
    """Accept an answer of which at least half can count; a plain task has one item."""
    countable = sum(item.countable for item in answer.items)
    if countable and 2 * countable >= len(answer.items):
        return ResultCheck(ResultVerdict.VALID)
    failed = next(item for item in answer.items if not item.countable)
    return ResultCheck(
        ResultVerdict.INVALID,
        failed.code or "STO-R082",
        failed.error_text
        or f"the task ended {failed.status} at level {task.spec.level}",
    )


def split_workunit(name: str) -> tuple[str, int]:
    """Return task id and attempt of a workunit's name; attempt 0 of a stranger's."""
    task_id, _, number = name.rpartition("_")
    ours = number.isascii() and number.isdigit()
    return task_id, int(number) if ours else 0


class Opinion:
    """What the validators of one attempt say, as far as it is known; for one thread.

    What is not known yet counts as a yes until `rise`, which then has all of it asked.

    Args:
        docket: knows the answers.
        matter: whose.
        program: the validators; the default's answers need no jail.
    """

    def __init__(
        self, docket: Docket, matter: Matter, program: ValidatorProgram
    ) -> None:
        self._docket = docket
        self._matter = matter
        self._program = program
        self._missing: list[Call] = []

    def accepts(self, value: bytes) -> bool:
        """Return the init validator's answer on an encoded value, for now."""
        return self._ask("init", value)

    def agree(self, left: bytes, right: bytes) -> bool:
        """Return whether two encoded values are the same answer, for now."""
        return self._ask("compare", left, right)

    def _ask(self, op: str, *values: bytes) -> bool:
        """Return the answer to a call; raises as `Docket.known` does."""
        call = Call(self._program, op, values)
        if not call.entry:
            return decide_default(call)
        # What costs no more than the reading did waits for no turn.
        answer = decide_natively(call, most=QUICK * sum(map(len, values)))
        if answer is None:
            answer = self._docket.known(self._matter, call)
        if answer is None:
            self._missing.append(call)
            return True
        return answer

    def rise(self) -> None:
        """Raise `NotDecidedYet` unless every answer was known."""
        if self._missing:
            self._docket.put(self._matter, self._missing)
            raise NotDecidedYet(
                "STO-R065", "the task's validators wait for their turn, or run"
            )


class ResultValidation:
    """`Validation` for the engine: header, strict decoding, then the validators.

    Answers are repeatable: they depend on rows and the result's bytes only. None waits
    for a validator: what has not run yet is PENDING.
    """

    def __init__(
        self,
        store: Store,  # tasks and sources
        docket: Docket,  # has the tasks' own validators run
        # takes the header of every result that ran, to keep its checkpoint
        seen: Callable[[ResultHeader], None] = lambda header: None,  # noqa: ARG005 - nothing is kept
    ) -> None:
        self._store = store
        self._docket = docket
        self._seen = seen
        self._answers = AnswerCache()

    def check(self, result: ReceivedResult) -> ResultCheck:  # noqa: PLR0911 - a table
        """Judge one result by itself."""
        task, attempt = self._context(result.workunit)
        try:
            data = read_result(result)
            header = check_header(data, result, task, attempt)
            if header.disposition is Disposition.NOT_FOR_THIS_HOST:
                # An honest refusal costs the host nothing: it goes to another one.
                return ResultCheck(
                    ResultVerdict.NOT_FOR_THIS_HOST,
                    known_code(header.code),
                    header.message,
                )
            ran = header.disposition is Disposition.RAN
            # Also of those that failed: the checkpoint that they saw is evidence all the same.
            if ran:
                self._seen(header)
            if not ran or header.status not in {RunStatus.OK, RunStatus.USER_ERROR}:
                code = known_code(header.code) or "STO-R082"
                return ResultCheck(ResultVerdict.INVALID, code, header.message)
            answer = self._remember(result, self._judge(task, attempt, data))
        except (UserCodeError, SwappedProgram) as error:
            return ResultCheck(ResultVerdict.FATAL, error.code, error.message)
        except NotDecidedYet as error:
            return ResultCheck(ResultVerdict.PENDING, error.code, error.message)
        # Ours, not the result's: asked again later, nobody is blamed.
        except JudgeTrouble as error:
            return ResultCheck(ResultVerdict.INCONCLUSIVE, error.code, error.message)
        except TrustError as error:
            return ResultCheck(ResultVerdict.INVALID, error.code, error.message)
        except OSError as error:
            return ResultCheck(ResultVerdict.INCONCLUSIVE, "STO-R030", str(error.errno))
        return replace(_summarise(answer, task), resumed_at=header.resumed_at)

    def _judge(self, task: TaskRow, attempt: AttemptRow, data: bytes) -> Answer:
        """Decode hostile bytes and mark the values that the init validator rejects."""
        answer = parse_answer(data, task.spec.map_items)
        if not task.spec.init_entry:
            return answer
        opinion = self.opinion(task, attempt)
        items = tuple(
            item if item.value is None or opinion.accepts(item.value) else _REJECTED
            for item in answer.items
        )
        opinion.rise()
        return Answer(items, answer.output)

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Say whether two results that passed `check` are the same answer.

        For a map task at least half of the items must agree; those that do not get
        their own outcome later (`answers.item_outcomes`).
        """
        task, attempt = self._context(left.workunit)
        try:
            opinion = self.opinion(task, attempt)
            ours = self.answer(left, task, attempt)
            theirs = self.answer(right, task, attempt)
            same = sum(
                same_items(one, other, opinion.agree)
                for one, other in zip(ours.items, theirs.items, strict=True)
            )
            # Raised only now, so that every question of this pair is already with a jail.
            opinion.rise()
        except (UserCodeError, SwappedProgram) as error:
            return Comparison(PairVerdict.FATAL, error.code, error.message)
        except NotDecidedYet as error:
            return Comparison(PairVerdict.PENDING, error.code, error.message)
        except (JudgeTrouble, TrustError, OSError) as error:
            code = getattr(error, "code", "STO-R030")
            return Comparison(PairVerdict.INCONCLUSIVE, code, "the server's trouble")
        # Half: where more were asked, one flaky item would cost a whole map its result.
        if same and 2 * same >= len(ours.items):
            return Comparison(PairVerdict.SAME)
        return Comparison(
            PairVerdict.DIFFERENT, "STO-R052", "the comparator says they differ"
        )

    def answer(
        self, result: ReceivedResult, task: TaskRow, attempt: AttemptRow
    ) -> Answer:
        """Return the decoded answer of a result that passed `check`."""
        known = self._answers.find(result.digest + result.name)
        if known is not None:
            return known
        return self._remember(result, self._judge(task, attempt, read_result(result)))

    def _remember(self, result: ReceivedResult, answer: Answer) -> Answer:
        self._answers.keep(result.digest + result.name, result.size, answer)
        return answer

    def opinion(self, task: TaskRow, attempt: AttemptRow) -> Opinion:
        """Return what asks the task's validators, as they were admitted.

        Raises:
            SwappedProgram: ``STO-R067``, see `check_program`.
            JudgeTrouble: ``STO-R062``: the task was cancelled; nobody runs them any more.
        """
        # Else a cancelled task would go on to hold a jail.
        if task.state is TaskState.CANCELLED:
            raise JudgeTrouble("STO-R062", "the task was cancelled")
        spec = task.spec
        with self._store.read() as connection:
            found = rows.load_contents(connection, {spec.validator_module})
        source = found.get(spec.validator_module, b"")
        try:
            # What decides on credit is what was admitted, whatever the database holds now.
            check_program(attempt.statement or b"", source)
        except SwappedProgram as error:
            log.error("%s is not judged: %s", attempt.workunit, error)  # noqa: TRY400 - says it all
            raise
        program = ValidatorProgram(
            source, spec.init_entry, spec.compare_entry, spec.level, spec.libraries
        )
        matter = Matter(task.account_id, attempt.workunit, max(1, spec.map_items))
        return Opinion(self._docket, matter, program)

    def wait(self, workunit: str, seconds: float) -> bool:
        """Say whether what is PENDING is answered in so many s; see `interface.Waits`."""
        return self._docket.wait(workunit, seconds)

    def forget(self, workunit: str) -> None:
        """Forget what the validators said of a workunit whose outcome stands."""
        self._docket.forget(workunit)

    def _context(self, workunit: str) -> tuple[TaskRow, AttemptRow]:
        task_id, number = split_workunit(workunit)
        with self._store.read() as connection:
            task = rows.find_task(connection, task_id)
            attempt = rows.find_attempt(connection, task_id, number)
        if task is None or attempt is None:
            raise InternalError("STO-R034", "the engine knows a workunit we do not")
        return task, attempt
