"""The durable steps of a workunit, each written inside the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from sqlalchemy import delete, insert, select, update

from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.creation import add_copies
from stoilo.server.engines.embedded.credit import grant
from stoilo.server.engines.embedded.quotas import note_error, note_success
from stoilo.server.engines.embedded.transitioner import (
    Action,
    Check,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    Judgement,
    Validity,
    next_actions,
)
from stoilo.server.engines.embedded.views import load_view
from stoilo.server.engines.interface import (
    CopyOutcome,
    CopyState,
    OutcomeKind,
    ReceivedResult,
    ResultCheck,
    ResultVerdict,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "Answers",
    "Question",
    "apply_action",
    "end_workunit",
    "forget_files",
    "set_transition",
    "settle",
    "write_answers",
]

_OF_VERDICT = {
    ResultVerdict.VALID: (CopyOutcome.SUCCESS, Validity.CHECKED),
    ResultVerdict.INVALID: (CopyOutcome.INVALID, Validity.INVALID),
    ResultVerdict.NOT_FOR_THIS_HOST: (CopyOutcome.REFUSED, Validity.INIT),
    ResultVerdict.FATAL: (CopyOutcome.SUCCESS, Validity.INVALID),
}


@dataclass(frozen=True, slots=True)
class Question:
    """What the validator has to answer before a workunit can move on.

    Attributes:
        workunit_id: row of the workunit.
        checks: copies whose results are to be judged by themselves.
        judge: copies among which a quorum is to be looked for.
        quorum: how many must agree.
        results: the files, by copy name.
    """

    workunit_id: int
    checks: tuple[str, ...]
    judge: tuple[str, ...]
    quorum: int
    results: dict[str, ReceivedResult]


@dataclass(frozen=True, slots=True)
class Answers:
    """The validator's answers to a `Question`.

    Attributes:
        workunit_id: row of the workunit.
        checks: verdicts by copy name.
        judged: the copies that were compared, empty if none.
        judgement: the outcome of comparing, None when it could not be completed.
        fatal: the answer that ends the workunit, None without.
    """

    workunit_id: int
    checks: dict[str, ResultCheck] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    judgement: Judgement | None = None
    fatal: ResultCheck | None = None


def apply_action(
    connection: Connection,
    workunit_id: int,
    action: Action,
    now: int,
) -> None:
    """Write one action of the rules."""
    match action:
        case Expire(copy):
            _end_copy(connection, copy, CopyOutcome.NO_REPLY, "STO-E022")
            note_error(connection, copy, now)
        case Drop(copy):
            _end_copy(connection, copy, CopyOutcome.NOT_NEEDED, "")
        case Create(count):
            add_copies(connection, workunit_id, count)
        case Finish(kind):
            end_workunit(connection, workunit_id, kind, now)
        case Check() | Judge():
            raise InternalError("STO-E004", "a question is not an action to write")
        case _:
            assert_never(action)


def _end_copy(
    connection: Connection, copy: str, outcome: CopyOutcome, code: str
) -> None:
    """Set one copy to over."""
    connection.execute(
        update(schema.copies)
        .where(schema.copies.c.name == copy)
        .values(state=CopyState.OVER.value, outcome=outcome.value, code=code)
    )


def end_workunit(
    connection: Connection,
    workunit_id: int,
    kind: OutcomeKind,
    now: int,
    *,
    canonical: str | None = None,
    answer: ResultCheck | None = None,
) -> None:
    """Give a workunit its outcome and put it into the outbox, unless it has one."""
    if answer is None and canonical is None:
        answer = ResultCheck(ResultVerdict.INVALID, _last_code(connection, workunit_id))
    table = schema.workunits
    changed = connection.execute(
        update(table)
        .where(table.c.id == workunit_id, table.c.outcome.is_(None))
        .values(
            outcome=kind.value,
            canonical=canonical,
            code=answer.code[:16] if answer else "",
            message=answer.message[:500] if answer else "",
        )
    )
    if changed.rowcount:
        connection.execute(
            insert(schema.outbox).values(
                workunit_id=workunit_id, created_at=now, retry_at=0, attempts=0
            )
        )


def _last_code(connection: Connection, workunit_id: int) -> str:
    """Return the code of the workunit's last failed copy, empty if none has one."""
    table = schema.copies
    code = connection.scalar(
        select(table.c.code)
        .where(table.c.workunit_id == workunit_id, table.c.code != "")
        .order_by(table.c.received_at.desc(), table.c.id.desc())
        .limit(1)
    )
    return code or ""


def settle(connection: Connection, workunit_id: int, now: int) -> None:
    """Drop what a finished workunit has open."""
    for action in next_actions(load_view(connection, workunit_id), now):
        if isinstance(action, Drop):
            apply_action(connection, workunit_id, action, now)


def set_transition(connection: Connection, workunit_id: int, at: int) -> None:
    """Set when to look at a workunit next."""
    connection.execute(
        update(schema.workunits)
        .where(schema.workunits.c.id == workunit_id)
        .values(transition_at=at)
    )


def write_answers(connection: Connection, answers: Answers, now: int) -> None:
    """Write what the validator said; answers to a finished workunit are void."""
    view = load_view(connection, answers.workunit_id)
    if view.outcome is not None:
        return
    waiting = {copy.name: copy for copy in view.copies}
    for name, check in answers.checks.items():
        unchecked = waiting[name].validity is Validity.INIT
        if unchecked and waiting[name].outcome is CopyOutcome.SUCCESS:
            _write_check(connection, name, check)
            if check.verdict is ResultVerdict.INVALID:
                note_error(connection, name, now)
    if answers.fatal is not None:
        kind = OutcomeKind.VALIDATOR_FAILED
        end_workunit(connection, answers.workunit_id, kind, now, answer=answers.fatal)
    elif answers.judgement is not None:
        _write_judgement(connection, answers, now)


def _write_check(connection: Connection, copy: str, check: ResultCheck) -> None:
    """Write the verdict about one result."""
    if check.verdict is ResultVerdict.INCONCLUSIVE:
        return
    outcome, validity = _OF_VERDICT[check.verdict]
    connection.execute(
        update(schema.copies)
        .where(schema.copies.c.name == copy)
        .values(outcome=outcome.value, validity=validity.value, code=check.code[:16])
    )


def _write_judgement(connection: Connection, answers: Answers, now: int) -> None:
    """Write the result of comparing: a canonical result, or none so far."""
    assert answers.judgement is not None  # noqa: S101 - the caller has looked
    canonical, same = answers.judgement.canonical, set(answers.judgement.same)
    for name in answers.judged:
        validity = Validity.INCONCLUSIVE
        if canonical:
            validity = Validity.VALID if name in same else Validity.INVALID
        connection.execute(
            update(schema.copies)
            .where(schema.copies.c.name == name)
            .values(validity=validity.value)
        )
        if validity is Validity.INVALID:
            note_error(connection, name, now)
    for copy in grant(connection, answers.workunit_id, now):
        note_success(connection, copy.host_id, copy.app)
    if canonical:
        kind = OutcomeKind.CANONICAL
        end_workunit(connection, answers.workunit_id, kind, now, canonical=canonical)


def forget_files(
    connection: Connection, workunit_id: int
) -> tuple[list[str], list[str]]:
    """Remove a finished workunit's claims; return its input digests and uploads."""
    connection.execute(
        delete(schema.outbox).where(schema.outbox.c.workunit_id == workunit_id)
    )
    needs = schema.workunit_files
    digests = connection.scalars(
        select(needs.c.digest).where(needs.c.workunit_id == workunit_id)
    ).all()
    connection.execute(delete(needs).where(needs.c.workunit_id == workunit_id))
    uploads = connection.scalars(
        select(schema.copies.c.upload_name).where(
            schema.copies.c.workunit_id == workunit_id
        )
    ).all()
    return list(digests), list(uploads)
