"""Checking again what a quorum, or a trusted host alone, has settled (thesis §9.2).

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
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, insert, select, update

from stoilo.server.engines.embedded.accounts.host_trust import ban_host, note_failed
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    RUNNING_CHECKS,
    CheckVerdict,
    Validity,
)
from stoilo.server.engines.embedded.workunits.creation import add_results

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow

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


def begin_check(connection: Connection, workunit_id: int, now: int) -> bool:
    """Make a re-check of an ended workunit, unless nobody could do it.

    There is nothing to do either when a trusted account is among those that agreed.
    """
    table = schema.results
    agreed = connection.scalars(
        select(table.c.user_id).where(
            table.c.workunit_id == workunit_id, table.c.validity == Validity.VALID.value
        )
    )
    trusted = _trusted(connection)
    if not trusted or trusted & set(agreed):
        return False
    _add(connection, workunit_id, CheckVerdict.PENDING, now)
    return True


def doubt_check(connection: Connection, result: str) -> None:
    """Note that a re-check of a check that goes on differed from the canonical result."""
    table, of = schema.spot_checks, schema.results
    its = select(of.c.id).where(of.c.name == result).scalar_subquery()
    waiting = (CheckVerdict.PENDING.value, CheckVerdict.OPEN.value)
    connection.execute(
        update(table)
        .where(table.c.copy_id == its, table.c.verdict.in_(waiting))
        .values(verdict=CheckVerdict.DOUBTED.value)
    )


def ask_again(connection: Connection, workunit_id: int, now: int) -> None:
    """Make the result of a second opinion: for a trusted account that had none, if any."""
    table = schema.results
    had = connection.scalars(
        select(table.c.user_id).where(table.c.workunit_id == workunit_id)
    )
    others = _trusted(connection) - set(had)
    kind = CheckVerdict.PENDING if others else CheckVerdict.OPEN
    _add(connection, workunit_id, kind, now)


def end_check(
    connection: Connection, workunit_id: int, verdict: CheckVerdict, now: int
) -> None:
    """Note how a workunit's running check ended; ban whom it showed to be wrong."""
    table = schema.spot_checks
    running = list(
        connection.scalars(
            select(table.c.copy_id)
            .where(
                table.c.workunit_id == workunit_id,
                table.c.verdict.in_([one.value for one in RUNNING_CHECKS]),
            )
            .order_by(table.c.copy_id)
        )
    )
    if not running:
        return
    rest = table.c.copy_id.in_(running[1:])
    connection.execute(
        update(table).where(rest).values(verdict=CheckVerdict.SECOND.value)
    )
    connection.execute(
        update(table)
        .where(table.c.copy_id == running[0])
        .values(verdict=verdict.value, ended_at=now)
    )
    if verdict is CheckVerdict.DIFFERENT:
        _punish(connection, workunit_id, now)
    elif verdict is CheckVerdict.DISPUTED:
        log.warning("checked again and disputed, nobody banned: row %d", workunit_id)


def note_resumption(connection: Connection, result: str, step: int) -> None:
    """Keep that a host says it resumed the run of a result at `step`."""
    table, of = schema.resumptions, schema.results
    copy_id = connection.scalar(select(of.c.id).where(of.c.name == result))
    connection.execute(delete(table).where(table.c.copy_id == copy_id))
    connection.execute(insert(table).values(copy_id=copy_id, step=step))


def all_resumed(connection: Connection, results: Collection[str]) -> bool:
    """Say whether the hosts of all of these results say that they resumed the run."""
    table, of = schema.resumptions, schema.results
    query = (
        select(func.count())
        .select_from(table.join(of, of.c.id == table.c.copy_id))
        .where(of.c.name.in_(results))
    )
    return connection.scalar(query) == len(results)


def _trusted(connection: Connection) -> set[int]:
    return set(connection.scalars(select(schema.trusted_users.c.user_id)))


def _add(
    connection: Connection, workunit_id: int, kind: CheckVerdict, now: int
) -> None:
    (copy_id,) = add_results(connection, workunit_id, 1)
    connection.execute(
        insert(schema.spot_checks).values(
            copy_id=copy_id,
            workunit_id=workunit_id,
            verdict=kind.value,
            made_at=now,
            ended_at=0,
        )
    )


def _punish(connection: Connection, workunit_id: int, now: int) -> None:
    for row in _blamed(connection, workunit_id):
        if row.step is not None and _excuses(connection, row.host_id) < MOST_EXCUSES:
            note_failed(connection, [row.name])
            connection.execute(
                insert(schema.excuses).values(
                    host_id=row.host_id, workunit_id=workunit_id, since=now
                )
            )
            log.warning("checked again and wrong, resumed and excused: %s", row.name)
        else:
            ban_host(connection, row.name, now)
            log.warning("checked again and wrong, host banned: %s", row.name)


def _excuses(connection: Connection, host_id: int) -> int:
    table = schema.excuses
    query = select(func.count()).where(table.c.host_id == host_id)
    return connection.scalar(query) or 0


def _blamed(connection: Connection, workunit_id: int) -> list[AnyRow]:
    table, own, resumed = schema.results, schema.trusted_users, schema.resumptions
    return list(
        connection.execute(
            select(table.c.name, table.c.host_id, resumed.c.step)
            .outerjoin(resumed, resumed.c.copy_id == table.c.id)
            .where(
                table.c.workunit_id == workunit_id,
                table.c.validity == Validity.VALID.value,
                table.c.id.not_in(select(schema.spot_checks.c.copy_id)),
                table.c.user_id.not_in(select(own.c.user_id)),
            )
            .order_by(table.c.id)
        )
    )
