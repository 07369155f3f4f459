"""Credit in BOINC's cobblestones: a fixed price a workunit, the same for every valid result.

A cobblestone is 1/200 of a day of a computer that makes 1 GFLOP/s. What a result is worth
follows from its workunit's estimate alone, which the server has made before anybody has
the result: neither the time that a host says it took nor its benchmark has a part in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sqlalchemy import exists, insert, select, update

from stoilo.core.boinc.messages import UserInfo
from stoilo.server.engines.embedded.accounts.preferences import (
    ensure_person,
    shown_name,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import Validity
from stoilo.server.engines.interface import ResultOutcome

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

__all__ = ["MOST_PER_RESULT", "credit_of", "grant", "user_info"]

COBBLESTONES_PER_FLOP: Final = 200.0 / (86_400 * 1e9)
# Estimates follow what hosts said of earlier tasks of the same source (the median), so a
# cheat who runs most of a source's tasks can raise them. This bounds what that brings.
MOST_PER_RESULT: Final = 2000.0


def credit_of(fpops_est: float) -> float:
    """Return what one valid result is worth, cobblestones, from its estimate, FLOP."""
    if not math.isfinite(fpops_est):
        return 0.0
    return min(max(0.0, fpops_est * COBBLESTONES_PER_FLOP), MOST_PER_RESULT)


def grant(connection: Connection, workunit_id: int, now: int) -> tuple[Row, ...]:  # type: ignore[type-arg]  # rows of `results`
    """Pay for every valid result of a workunit that was not paid for; return those results.

    Call it in the transaction that makes results valid: both are stored or neither, and a
    second call pays nothing.
    """
    table, paid = schema.results, schema.grants
    fresh = connection.execute(
        select(table, schema.workunits.c.fpops_est, schema.workunits.c.app)
        .join(schema.workunits, schema.workunits.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.outcome == ResultOutcome.SUCCESS.value,
            table.c.validity == Validity.VALID.value,
            ~exists().where(paid.c.copy_id == table.c.id),
        )
        .order_by(table.c.id)
    ).all()
    for result in fresh:
        _pay(connection, result, credit_of(result.fpops_est), now)
    return tuple(fresh)


def user_info(user_id: int, row: Row, host_credit: float) -> UserInfo:  # type: ignore[type-arg]  # see below
    """Return what the client shows of an account and this host.

    Args:
        user_id: of the account.
        row: of `find_visitor`: the account, with NULLs where it never chose anything.
        host_credit: of the host, cobblestones.
    """
    return UserInfo(
        id=user_id,
        name=shown_name(user_id, row.name or ""),
        created_at=row.created_at,
        total_credit=row.person_total_credit or 0.0,
        host_total_credit=host_credit,
        venue=row.venue or "",
    )


def _pay(connection: Connection, result: Row, worth: float, now: int) -> None:  # type: ignore[type-arg]  # a row of `results`
    """Write one grant, to the result, its user and its host."""
    connection.execute(
        insert(schema.grants).values(
            copy_id=result.id,
            user_id=result.user_id,
            host_id=result.host_id,
            granted=worth,
            granted_at=now,
        )
    )
    ensure_person(connection, result.user_id)
    people, records = schema.people, schema.host_records
    for table, mine in (
        (people, people.c.user_id == result.user_id),
        (records, records.c.host_id == result.host_id),
    ):
        more = table.c.total_credit + worth
        connection.execute(update(table).where(mine).values(total_credit=more))
