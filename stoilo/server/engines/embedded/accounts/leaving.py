"""What ran on a volunteer's computers; how he leaves the project, and is erased from it.

Who has left gets no more work until he comes back; what his computers hold they may finish.
Erasing keeps rows, because numbers must never come again, and takes out of them whatever
tells of a person or his computers: address, name, keys, choices, what a host said of
itself. What remains is which copy an erased number had, when, and how that ended. From its
address one thing is kept, a MAC under the project's secret: whoever makes an account of it
again gets other keys, so that those of before open nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from stoilo.server.engines.embedded.accounts.quotas import Allowance
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select

LEFT_DELAY_S = 3600
_WORDS_OF_HOST = (
    "domain_name", "vendor", "model", "os_name", "os_version", "platform", "client",
    "max_level", "topics",
)  # fmt: skip
_NUMBERS_OF_HOST = (
    "ncpus", "fpops", "memory_bytes", "disk_free_bytes", "total_credit", "seen_at",
    "require_review", "require_public_source",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostRun:
    """One copy that a computer had; times in s since 1970, credit in cobblestones."""

    workunit: str  # its name
    app: str  # BOINC app: the level
    host_id: int
    state: str  # `ResultProgress`
    outcome: str  # `ResultOutcome`
    code: str
    cpu_s: float  # what its host says that it took, 0: not said
    sent_at: int
    received_at: int
    granted: float | None  # None: not paid, or not yet


def runs_of(user_id: int, most: int, skip: int) -> Select[Any]:
    """Return the query for copies that an account's computers had, the newest first."""
    table, of, hosts = schema.results, schema.workunits, schema.hosts
    mine = select(hosts.c.id).where(hosts.c.user_id == user_id)
    return (
        select(table, of.c.app, of.c.name.label("workunit"))
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.host_id.in_(mine))
        .order_by(table.c.id.desc())
        .limit(most)
        .offset(skip)
    )


def set_left(connection: Connection, user_id: int, left_at: int) -> None:
    """Let an account's computers get no work from now (s) on, or again with 0."""
    users = schema.users
    query = update(users).where(users.c.id == user_id)
    connection.execute(query.values(left_at=left_at))


def nothing_for_who_left(left_at: int) -> Allowance | None:
    """Return what an account may get that has left (nothing), None for all others."""
    if not left_at:
        return None
    text = (
        "This account has left the project and gets no tasks; its page at the project "
        "takes that back."
    )
    return Allowance((), 0, (text,), LEFT_DELAY_S)


def erase(
    connection: Connection,
    user_id: int,
    grave: str,  # what is kept of the address
    now: int,  # s
) -> None:
    """Take a person out of an account and its hosts; what they hold goes to others."""
    users, hosts = schema.users, schema.hosts
    query = select(hosts.c.id).where(hosts.c.user_id == user_id)
    mine = connection.scalars(query).all()
    _call_off(connection, mine, now)
    for table in (schema.host_apps, schema.leases):
        connection.execute(delete(table).where(table.c.host_id.in_(mine)))
    nothing = dict.fromkeys(_WORDS_OF_HOST, "") | dict.fromkeys(_NUMBERS_OF_HOST, 0)
    for number in mine:
        one = update(hosts).where(hosts.c.id == number)
        # An identity of a machine, of which an account may have but one
        connection.execute(one.values(nothing | {"cpid": f"erased {number}"}))
    connection.execute(
        update(users)
        .where(users.c.id == user_id)
        .values(
            email=f"{grave}.{user_id}",
            key_hash=secrets.token_hex(32),
            weak_key_hash=secrets.token_hex(32),
            key_number=users.c.key_number + 1,  # pages of before are of no use
            **dict.fromkeys(("password_salt", "password_hash", "name"), ""),
            **dict.fromkeys(("levels", "topics", "document"), ""),
            **dict.fromkeys(("require_review", "require_public_source"), 0),
            **dict.fromkeys(("trusted", "preferences_at"), 0),
            total_credit=0.0,
            left_at=now,
        )
    )


def _call_off(connection: Connection, hosts: Sequence[int], now: int) -> None:
    table, of = schema.results, schema.workunits
    its = table.c.host_id.in_(hosts)
    held = (its, table.c.state == ResultProgress.IN_PROGRESS.value)
    waiting = connection.scalars(select(table.c.workunit_id).where(*held)).all()
    connection.execute(update(table).where(*held).values(deadline=now))
    connection.execute(update(table).where(its).values(host_key="erased"))
    connection.execute(update(of).where(of.c.id.in_(waiting)).values(transition_at=now))
