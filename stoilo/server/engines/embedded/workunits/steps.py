"""The durable steps of a workunit, each written inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from stoilo.server.engines.embedded.accounts.quotas import note_bad
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    Action,
    CheckVerdict,
    Close,
    Create,
    Drop,
    Expire,
    Finish,
    ReleaseClass,
    SecondOpinion,
    Validity,
    WorkunitState,
    load_view,
)
from stoilo.server.engines.embedded.workunits.creation import add_results
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


def change_workunit(connection: Connection, workunit_id: int, **values: Any) -> None:  # noqa: ANN401 - columns
    """Write columns of a workunit."""
    table = schema.workunits
    connection.execute(update(table).where(table.c.id == workunit_id).values(values))


def apply_action(
    connection: Connection, workunit_id: int, action: Action, now: int
) -> None:
    """Write one action of the rules; questions are none."""
    match action:
        case Expire(result):
            _end_result(connection, result, ResultOutcome.NO_REPLY, "STO-E022")
            note_bad(connection, [result], now)
        case Drop(result):
            _end_result(connection, result, ResultOutcome.NOT_NEEDED, "")
        case Create(count):
            add_results(connection, workunit_id, count)
        case Finish(kind):
            end_workunit(connection, workunit_id, kind)
        case ReleaseClass():
            change_workunit(connection, workunit_id, host_class="")
        case Close():
            _close(connection, workunit_id, now)
        case SecondOpinion():
            view = load_view(connection, workunit_id)
            ask_again(connection, workunit_id, view)


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
    *,
    canonical: str | None = None,
    answer: ResultCheck | None = None,
) -> None:
    """Give a workunit its outcome, which the server is to be told, unless it has one."""
    if answer is None and canonical is None:
        answer = ResultCheck(ResultVerdict.INVALID, _last_code(connection, workunit_id))
    table = schema.workunits
    connection.execute(
        update(table)
        .where(table.c.id == workunit_id, table.c.outcome.is_(None))
        .values(
            state=WorkunitState.OVER.value,
            outcome=kind.value,
            canonical=canonical,
            code=answer.code[:16] if answer else "",
            message=answer.message[:500] if answer else "",
            tell_at=0,
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


def begin_lingering(
    connection: Connection,  # inside the transaction that ended it
    workunit_id: int,  # its row
    *,
    recheck: bool,  # let a trusted host compute it once more
) -> None:
    """Keep a workunit that has just ended while results may still be compared."""
    view = load_view(connection, workunit_id)
    checked = recheck and begin_check(connection, workunit_id, view)
    if checked or has_stragglers(view):
        lingering = WorkunitState.LINGERING.value
        change_workunit(connection, workunit_id, state=lingering)


def _close(connection: Connection, workunit_id: int, now: int) -> None:
    table = schema.results
    change_workunit(connection, workunit_id, state=WorkunitState.OVER.value)
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
