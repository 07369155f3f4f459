"""The durable steps of a workunit, each written inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from sqlalchemy import delete, insert, select, update

from stoilo.core.errors import InternalError
from stoilo.server.engines.embedded.accounts.host_trust import note_failed
from stoilo.server.engines.embedded.accounts.quotas import note_error
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Action,
    Check,
    CheckVerdict,
    Close,
    Compare,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    ReleaseClass,
    SecondOpinion,
    Validity,
    load_view,
)
from stoilo.server.engines.embedded.workunits.creation import add_results, release_class
from stoilo.server.engines.embedded.workunits.spot_checks import (
    ask_again,
    begin_check,
    end_check,
)
from stoilo.server.engines.embedded.workunits.transitioner import (
    has_stragglers,
    next_actions,
)
from stoilo.server.engines.interface import (
    OutcomeKind,
    ResultCheck,
    ResultOutcome,
    ResultProgress,
    ResultVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection


def apply_action(
    connection: Connection, workunit_id: int, action: Action, now: int
) -> None:
    """Write one action of the rules."""
    match action:
        case Expire(result):
            note_failed(connection, [result])
            _end_result(connection, result, ResultOutcome.NO_REPLY, "STO-E022")
            note_error(connection, result, now)
        case Drop(result):
            _end_result(connection, result, ResultOutcome.NOT_NEEDED, "")
        case Create(count):
            add_results(connection, workunit_id, count)
        case Finish(kind):
            end_workunit(connection, workunit_id, kind, now)
        case ReleaseClass():
            release_class(connection, workunit_id)
        case Close():
            _close(connection, workunit_id, now)
        case SecondOpinion():
            ask_again(connection, workunit_id, now)
        case Check() | Judge() | Compare():
            raise InternalError("STO-E004", "a question is not an action to write")
        case _:
            assert_never(action)


def _end_result(
    connection: Connection, result: str, outcome: ResultOutcome, code: str
) -> None:
    connection.execute(
        update(schema.results)
        .where(schema.results.c.name == result)
        .values(state=ResultProgress.OVER.value, outcome=outcome.value, code=code)
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
    table = schema.results
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


def begin_lingering(
    connection: Connection,  # inside the transaction that ended it
    workunit_id: int,  # its row
    now: int,  # s
    *,
    recheck: bool,  # let a trusted host compute it once more
) -> None:
    """Keep a workunit that has just ended while results may still be compared."""
    checked = recheck and begin_check(connection, workunit_id, now)
    if checked or has_stragglers(load_view(connection, workunit_id)):
        connection.execute(insert(schema.lingering).values(workunit_id=workunit_id))


def _close(connection: Connection, workunit_id: int, now: int) -> None:
    kept, table = schema.lingering, schema.results
    connection.execute(delete(kept).where(kept.c.workunit_id == workunit_id))
    end_check(connection, workunit_id, CheckVerdict.UNFINISHED, now)
    undecided = [
        result.name
        for result in load_view(connection, workunit_id).results
        if result.undecided
    ]
    connection.execute(
        update(table)
        .where(table.c.name.in_(undecided))
        .values(validity=Validity.TOO_LATE.value)
    )


def forget_files(
    connection: Connection, workunits: Collection[int]
) -> tuple[list[str], list[str]]:
    """Remove finished workunits' claims; return their input digests and uploads."""
    if not workunits:
        return [], []
    needs, results = schema.workunit_files, schema.results
    theirs = needs.c.workunit_id.in_(workunits)
    digests = connection.scalars(select(needs.c.digest).where(theirs)).all()
    connection.execute(delete(needs).where(theirs))
    uploads = connection.scalars(
        select(results.c.upload_name).where(results.c.workunit_id.in_(workunits))
    ).all()
    return list(dict.fromkeys(digests)), list(uploads)
