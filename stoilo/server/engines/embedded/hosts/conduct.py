"""Accounts whose computers turn work away: they abort it, or refuse it by their opt-in.

Neither uses up a workunit's total, but each costs a result and time, and one account after
the other could do it. So an account pauses after some in a row, all its computers
together, each time twice as long, until one of its results is valid. A *newcomer* pauses
sooner: an account that somebody made over the web, none of whose results was ever valid.

The rules are pure; the rows that hold them are at the end. Quotas of single computers are
in `quotas`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.hosts.quotas import Allowance

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

__all__ = [
    "CONDUCT_RULES",
    "Conduct",
    "ConductRules",
    "after_turning_away",
    "forgive",
    "is_newcomer",
    "note_turned_away",
    "pause_of",
]


@dataclass(frozen=True, slots=True)
class ConductRules:
    """Numbers of the rules."""

    patience: int = 20  # results turned away in a row before the first pause
    newcomer_patience: int = 3  # the same for newcomers
    first_pause_s: int = 60  # length of that pause, s; each further result doubles it
    longest_pause_s: int = 3600  # longest pause, s


CONDUCT_RULES: Final = ConductRules()


@dataclass(frozen=True, slots=True)
class Conduct:
    """What an account did lately."""

    turned_away: int = 0  # results since its last valid result
    paused_until: int = 0  # no result before that, s since 1970


def is_newcomer(password_hash: str, total_credit: float | None) -> bool:
    """Say whether an account is one of a stranger who has helped with nothing yet."""
    return bool(password_hash) and not total_credit


def after_turning_away(
    conduct: Conduct, now: int, *, newcomer: bool, rules: ConductRules = CONDUCT_RULES
) -> Conduct:
    """Return what is known of an account after one more result at `now`, s."""
    row = conduct.turned_away + 1
    over = row - (rules.newcomer_patience if newcomer else rules.patience)
    pause = 0
    if over >= 0:
        doubled = rules.first_pause_s << min(over, 32)
        pause = min(doubled, rules.longest_pause_s)
    until = max(conduct.paused_until, now + pause if pause else 0)
    return Conduct(row, until)


def pause_of(paused_until: int, now: int) -> Allowance | None:
    """Return what an account may get during its pause (nothing), None outside of one."""
    if now >= paused_until:
        return None
    when = datetime.fromtimestamp(paused_until, UTC).strftime("%H:%M UTC")
    text = (
        "The computers of this account have aborted or refused many tasks in a row; "
        f"they get new ones after {when} [STO-E111]."
    )
    return Allowance((), 0, (text,), paused_until - now)


def note_turned_away(
    connection: Connection, user_id: int, results: int, now: int
) -> None:
    """Count results that an account's computers have just turned away."""
    users, people, table = schema.users, schema.people, schema.account_standings
    row = connection.execute(
        select(
            users.c.password_hash,
            people.c.total_credit,
            table.c.turned_away,
            table.c.paused_until,
        )
        .outerjoin(people, people.c.user_id == users.c.id)
        .outerjoin(table, table.c.user_id == users.c.id)
        .where(users.c.id == user_id)
    ).one()
    conduct = Conduct(row.turned_away or 0, row.paused_until or 0)
    newcomer = is_newcomer(row.password_hash, row.total_credit)
    for _ in range(results):
        conduct = after_turning_away(conduct, now, newcomer=newcomer)
    forgive(connection, [user_id])
    connection.execute(
        insert(table).values(
            user_id=user_id,
            turned_away=conduct.turned_away,
            paused_until=conduct.paused_until,
        )
    )


def forgive(connection: Connection, users: Collection[int]) -> None:
    """Forget what accounts turned away: a result of theirs is valid."""
    table = schema.account_standings
    if users:
        connection.execute(delete(table).where(table.c.user_id.in_(users)))
