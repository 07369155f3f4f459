"""Credit in BOINC's cobblestones: a fixed price a workunit, the same for every valid copy.

A cobblestone is 1/200 of a day of a computer that makes 1 GFLOP/s. What a copy is worth
follows from its workunit's estimate alone, which the server has made before anybody has
the copy: neither the time that a host says it took nor its benchmark has a part in it.
Later workunits of the same source are estimated from what many hosts have said
(`stoilo.server.admission.estimates`: the median, within the task's limits), so a cheat who
wants more must be the most of a source's last hosts, and gets at most `MOST_PER_COPY` for a
copy, as all others do.

Recent average credit is BOINC's: credit a day, forgotten by half in a week.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Table, exists, insert, select, update

from stoilo.core.boinc.messages import UserInfo
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.people import ensure_person, shown_name
from stoilo.server.engines.embedded.rules.records import Validity
from stoilo.server.engines.interface import CopyOutcome

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Row

__all__ = [
    "HALF_LIFE_S",
    "MOST_PER_COPY",
    "Standing",
    "add_work",
    "credit_of",
    "fade",
    "grant",
    "standing_of",
    "user_info",
]

DAY_S = 86_400
HALF_LIFE_S = 7 * DAY_S
COBBLESTONES_PER_FLOP = 200.0 / (DAY_S * 1e9)
MOST_PER_COPY = 2000.0
_INSTANT = 1e-6  # of what is forgotten: below it the formula's limit is exact enough


@dataclass(frozen=True, slots=True)
class Standing:
    """Credit of a user or host.

    Attributes:
        total: cobblestones ever granted.
        average: cobblestones a day, as of `at`.
        at: s since 1970, 0 before the first grant.
    """

    total: float = 0.0
    average: float = 0.0
    at: int = 0


def credit_of(fpops_est: float) -> float:
    """Return what one valid copy is worth, cobblestones, from its estimate, FLOP."""
    if not math.isfinite(fpops_est):
        return 0.0
    return min(max(0.0, fpops_est * COBBLESTONES_PER_FLOP), MOST_PER_COPY)


def fade(standing: Standing, now: int) -> Standing:
    """Return what is left of the average at `now`, s."""
    elapsed = max(0, now - standing.at)
    kept = 0.5 ** (elapsed / HALF_LIFE_S)
    return Standing(standing.total, standing.average * kept, max(now, standing.at))


def add_work(standing: Standing, work: float, now: int) -> Standing:
    """Return the standing after `work` cobblestones were granted at `now`, s.

    The work is spread over the time since the last grant; a first grant counts as if it
    had come at once.
    """
    elapsed = max(0, now - standing.at) if standing.at else 0
    faded = fade(standing, now)
    forgotten = 1.0 - 0.5 ** (elapsed / HALF_LIFE_S)
    if forgotten > _INSTANT:
        gained = forgotten * work * DAY_S / elapsed
    else:
        gained = math.log(2) * work * DAY_S / HALF_LIFE_S
    return Standing(standing.total + work, faded.average + gained, faded.at)


def grant(connection: Connection, workunit_id: int, now: int) -> tuple[Row, ...]:  # type: ignore[type-arg]  # rows of `copies`
    """Pay for every valid copy of a workunit that was not paid for; return those copies.

    Call it in the transaction that makes copies valid: both are stored or neither, and a
    second call pays nothing.
    """
    table, paid = schema.copies, schema.grants
    fresh = connection.execute(
        select(table, schema.workunits.c.fpops_est, schema.workunits.c.app)
        .join(schema.workunits, schema.workunits.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.outcome == CopyOutcome.SUCCESS.value,
            table.c.validity == Validity.VALID.value,
            ~exists().where(paid.c.copy_id == table.c.id),
        )
        .order_by(table.c.id)
    ).all()
    for copy in fresh:
        _pay(connection, copy, credit_of(copy.fpops_est), now)
    return tuple(fresh)


def user_info(
    user_id: int,
    row: Row,  # type: ignore[type-arg]  # see below
    person: Standing,
    host: Standing,
    now: int,
) -> UserInfo:
    """Return what the client shows of an account and this host.

    Args:
        user_id: of the account.
        row: with its ``created_at``, and ``name`` and ``venue`` or NULLs.
        person: its standing.
        host: the host's.
        now: s.
    """
    person, host = fade(person, now), fade(host, now)
    return UserInfo(
        id=user_id,
        name=shown_name(user_id, row.name or ""),
        created_at=row.created_at,
        total_credit=person.total,
        expavg_credit=person.average,
        host_total_credit=host.total,
        host_expavg_credit=host.average,
        venue=row.venue or "",
    )


def _pay(connection: Connection, copy: Row, worth: float, now: int) -> None:  # type: ignore[type-arg]  # a row of `copies`
    """Write one grant, to the copy, its user and its host."""
    connection.execute(
        insert(schema.grants).values(
            copy_id=copy.id,
            user_id=copy.user_id,
            host_id=copy.host_id,
            granted=worth,
            granted_at=now,
        )
    )
    ensure_person(connection, copy.user_id)
    people, records = schema.people, schema.host_records
    _add(connection, people, people.c.user_id, copy.user_id, worth, now)
    _add(connection, records, records.c.host_id, copy.host_id, worth, now)


def _add(
    connection: Connection,
    table: Table,
    key: Column[int],
    row: int,
    worth: float,
    now: int,
) -> None:
    """Add a grant to one user's or host's standing."""
    after = add_work(_load(connection, table, key, row), worth, now)
    connection.execute(
        update(table)
        .where(key == row)
        .values(
            total_credit=after.total, average_credit=after.average, average_at=after.at
        )
    )


def standing_of(total: float | None, average: float | None, at: int | None) -> Standing:
    """Return a standing, the empty one for NULLs."""
    return Standing(total or 0.0, average or 0.0, at or 0)


def _load(connection: Connection, table: Table, key: Column[int], row: int) -> Standing:
    """Return one user's or host's standing, the empty one without a row."""
    found = connection.execute(
        select(table.c.total_credit, table.c.average_credit, table.c.average_at).where(
            key == row
        )
    ).first()
    return Standing() if found is None else Standing(*found)
