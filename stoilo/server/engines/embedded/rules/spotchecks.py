"""Checking again what a quorum, or a trusted host alone, has settled (thesis §9.2).

With probability `rate` a workunit that found its canonical result gets one more copy, for
hosts of trusted accounts only (the operator's own machines). Its result is compared with
the canonical one by the same validators. Where they differ, the hosts that gave the
canonical answer lose their record and are banned; what was delivered stays as it is. Every
check is a row that the server can read (`ended_checks`).

For a task of many items two results are the same when at least half of the items are, as
in a quorum; falsified items below that share are not found here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.creation import add_copies
from stoilo.server.engines.embedded.rules.hosttrust import ban_host
from stoilo.server.engines.embedded.rules.records import Validity

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["CheckVerdict", "SpotCheck", "begin_check", "end_check", "ended_checks"]


log = logging.getLogger(__name__)


class CheckVerdict(StrEnum):
    """How a spot check ended."""

    PENDING = "pending"
    SAME = "same"
    DIFFERENT = "different"
    UNFINISHED = "unfinished"  # no trusted host brought a result in time


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """One spot check that has ended.

    Attributes:
        id: grows with the checks that were made.
        workunit: its name.
        verdict: how it ended.
        ended_at: s since 1970.
        banned: hosts that were banned for it.
    """

    id: int
    workunit: str
    verdict: CheckVerdict
    ended_at: int
    banned: tuple[int, ...] = ()


def begin_check(connection: Connection, workunit_id: int, now: int) -> bool:
    """Make a re-check of an ended workunit, unless nobody could do it.

    There is nothing to do either when a trusted account is among those that agreed.
    """
    trusted = set(connection.scalars(select(schema.trusted_users.c.user_id)))
    table = schema.copies
    agreed = connection.scalars(
        select(table.c.user_id).where(
            table.c.workunit_id == workunit_id,
            table.c.validity == Validity.VALID.value,
        )
    )
    if not trusted or trusted & set(agreed):
        return False
    (copy_id,) = add_copies(connection, workunit_id, 1)
    connection.execute(
        insert(schema.spot_checks).values(
            copy_id=copy_id,
            workunit_id=workunit_id,
            verdict=CheckVerdict.PENDING.value,
            made_at=now,
            ended_at=0,
        )
    )
    return True


def end_check(
    connection: Connection, workunit_id: int, verdict: CheckVerdict, now: int
) -> None:
    """Note how a workunit's pending check ended; ban whom it showed to be wrong."""
    table = schema.spot_checks
    changed = connection.execute(
        update(table)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.verdict == CheckVerdict.PENDING.value,
        )
        .values(verdict=verdict.value, ended_at=now)
    )
    if changed.rowcount and verdict is CheckVerdict.DIFFERENT:
        wrong = _blamed(connection, workunit_id)
        for copy in wrong:
            ban_host(connection, copy, now)
        log.warning("checked again and wrong, hosts banned: %s", ", ".join(wrong))


def _blamed(connection: Connection, workunit_id: int) -> list[str]:
    """Return the copies of others that agree with the canonical one."""
    table, own = schema.copies, schema.trusted_users
    return list(
        connection.scalars(
            select(table.c.name).where(
                table.c.workunit_id == workunit_id,
                table.c.validity == Validity.VALID.value,
                table.c.id.not_in(select(schema.spot_checks.c.copy_id)),
                table.c.user_id.not_in(select(own.c.user_id)),
            )
        )
    )


def ended_checks(connection: Connection, since: int = 0) -> list[SpotCheck]:
    """Return the checks that ended at `since`, s, or later, oldest first."""
    table, of = schema.spot_checks, schema.workunits
    rows = connection.execute(
        select(table, of.c.name)
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.ended_at >= max(1, since))
        .order_by(table.c.ended_at, table.c.copy_id)
    ).all()
    return [
        SpotCheck(
            row.copy_id,
            row.name,
            CheckVerdict(row.verdict),
            row.ended_at,
            _banned_for(connection, row.workunit_id),
        )
        for row in rows
    ]


def _banned_for(connection: Connection, workunit_id: int) -> tuple[int, ...]:
    """Return the hosts that were banned for a workunit and still are."""
    table = schema.bans
    query = select(table.c.host_id).where(table.c.workunit_id == workunit_id)
    return tuple(connection.scalars(query.order_by(table.c.host_id)))
