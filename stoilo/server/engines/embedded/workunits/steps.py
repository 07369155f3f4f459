"""The durable steps of a workunit; and checking again what is settled (thesis §9.2).

Each step is written inside the caller's transaction.

With probability `rate` a workunit that found its canonical result gets one more result, for
hosts of trusted accounts only (the operator's own machines). Its result is compared with
the canonical one by the same validators. Where they differ somebody else is asked for a
second opinion: a host of another trusted account, or any third host where there is none.
Only when both say the same, other than the canonical result, are the hosts that gave that
one banned, and lose their record; what was delivered stays as it is. Every check is a row
that the server can read (`ended_checks`).

A run that was interrupted and went on from a checkpoint may differ without any bad will:
what its task keeps outside of its state is lost. Two such re-checks are no evidence, and a
host whose own run was resumed is *excused*: it loses its record and is not banned, at most
`MOST_EXCUSES` times, as that it was resumed is its own word.

For a task of many items two results are the same when at least half of the items are, as
in a quorum; falsified items below that share are not found here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, func, insert, select, update

from stoilo.server.engines.embedded.accounts.host_trust import ban, end_record
from stoilo.server.engines.embedded.accounts.quotas import note_bad
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    RUNNING_CHECKS,
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

    from stoilo.server.engines.embedded.db.records import WorkunitView

log = logging.getLogger(__name__)

# Wrong results of resumed runs for which a host is not banned
MOST_EXCUSES: Final = 2


def second_verdict(
    *,
    like_canonical: bool,  # it is the same as the canonical result
    like_first: bool,  # it is the same as the first re-check
    both_resumed: bool,  # both re-checks went on after an interruption
) -> CheckVerdict:
    """Return what a second opinion makes of a re-check that differed."""
    proven = like_first and not like_canonical and not both_resumed
    return CheckVerdict.DIFFERENT if proven else CheckVerdict.DISPUTED


def begin_check(connection: Connection, workunit_id: int, view: WorkunitView) -> bool:
    """Make a re-check of an ended workunit, unless nobody could do it.

    There is nothing to do either when a trusted account is among those that agreed.
    """
    trusted = _trusted(connection)
    agreed = {one.user_id for one in view.results if one.validity is Validity.VALID}
    if not trusted or trusted & agreed:
        return False
    add_results(connection, workunit_id, 1, CheckVerdict.PENDING.value)
    return True


def doubt_check(connection: Connection, result: str) -> None:
    """Note that a re-check of a check that goes on differed from the canonical result."""
    table = schema.results
    waiting = (CheckVerdict.PENDING.value, CheckVerdict.OPEN.value)
    connection.execute(
        update(table)
        .where(table.c.name == result, table.c.recheck.in_(waiting))
        .values(recheck=CheckVerdict.DOUBTED.value)
    )


def ask_again(connection: Connection, workunit_id: int, view: WorkunitView) -> None:
    """Make the result of a second opinion: for a trusted account that had none, if any."""
    others = _trusted(connection) - {result.user_id for result in view.results}
    kind = CheckVerdict.PENDING if others else CheckVerdict.OPEN
    add_results(connection, workunit_id, 1, kind.value)


def end_check(
    connection: Connection, workunit_id: int, verdict: CheckVerdict, now: int
) -> None:
    """Note how a workunit's running check ended; ban whom it showed to be wrong."""
    table = schema.results
    running = connection.scalars(
        select(table.c.id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.recheck.in_([one.value for one in RUNNING_CHECKS]),
        )
        .order_by(table.c.id)
    ).all()
    if not running:
        return
    connection.execute(
        update(table)
        .where(table.c.id.in_(running))
        .values(recheck=CheckVerdict.SECOND.value)
    )
    connection.execute(
        update(table)
        .where(table.c.id == running[0])
        .values(recheck=verdict.value, check_ended_at=now)
    )
    if verdict is CheckVerdict.DIFFERENT:
        _punish(connection, workunit_id, now)
    elif verdict is CheckVerdict.DISPUTED:
        log.warning("checked again and disputed, nobody banned: row %d", workunit_id)


def both_resumed(connection: Connection, *results: str) -> bool:
    """Say whether the hosts of all of these results say that they resumed the run."""
    table = schema.results
    query = select(func.min(table.c.resumed_at)).where(table.c.name.in_(results))
    return bool(connection.scalar(query))


def _trusted(connection: Connection) -> set[int]:
    users = schema.users
    return set(connection.scalars(select(users.c.id).where(users.c.trusted == 1)))


def _punish(connection: Connection, workunit_id: int, now: int) -> None:
    table, of, excuses = schema.results, schema.workunits, schema.excuses
    # all that agreed with the canonical result, and are none of our own
    blamed = connection.execute(
        select(table, of.c.app)
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.validity == Validity.VALID.value,
            table.c.recheck == "",
            table.c.user_id.not_in(_trusted(connection)),
        )
        .order_by(table.c.id)
    ).all()
    for row in blamed:
        known = select(func.count()).where(excuses.c.host_id == row.host_id)
        if row.resumed_at and (connection.scalar(known) or 0) < MOST_EXCUSES:
            end_record(connection, row.host_id, row.app)
            excuse = {"host_id": row.host_id, "workunit_id": workunit_id}
            connection.execute(insert(excuses).values(excuse))
            log.warning("checked again and wrong, resumed and excused: %s", row.name)
        else:
            ban(connection, row.host_id, now, workunit_id=workunit_id)
            log.warning("checked again and wrong, host banned: %s", row.name)


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
