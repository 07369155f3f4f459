"""Volunteers and their computers: read from our tables, written as BOINC's rows.

Numbers are kept: a client names its host by number and the project by URL and key, so one
that was attached goes on by itself where URL, key, number and code-signing key stay. What
BOINC has no place for is said in docs/howto/move-to-a-stock-server.md.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from sqlalchemy import exists, select

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.accounts.host_filter import LEVELS
from stoilo.server.engines.embedded.db import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.accounts.accounts import Account


__all__ = [
    "Conflict",
    "HostRow",
    "UserRow",
    "host_values",
    "known_workunits",
    "missing_rows",
    "read_hosts",
    "read_users",
    "user_values",
]


# ``host.max_results_day``: the scheduler sends such a host nothing.
BLACKLISTED: Final = -1


@dataclass(frozen=True, slots=True)
class UserRow:
    """One account.

    Attributes:
        user_id: its number, kept.
        email: its address; with the number, what it is known by.
        key: what hosts show; secret. BOINC's table holds it in clear.
        name: shown to others.
        max_level: the highest level that its owner allows.
        app_ids: numbers of the apps up to that level, in the stock project.
        created_at: s since 1970.
        total_credit, average_credit: cobblestones.
        average_at: when the average was taken, s.
    """

    user_id: int
    email: str
    key: str
    name: str
    max_level: str
    app_ids: tuple[int, ...]
    created_at: int
    total_credit: float
    average_credit: float
    average_at: int


@dataclass(frozen=True, slots=True)
class HostRow:
    """One computer; `cpid` with the number is what it is known by."""

    host_id: int
    user_id: int
    cpid: str
    rpc_seqno: int
    created_at: int
    seen_at: int
    domain_name: str
    vendor: str
    model: str
    os_name: str
    os_version: str
    ncpus: int
    fpops: float
    memory_bytes: float
    disk_free_bytes: float
    total_credit: float
    average_credit: float
    average_at: int
    banned: bool


class Conflict(UsageError):
    """A number that is taken by somebody else: ``STO-B073``."""


def user_values(row: UserRow) -> dict[str, object]:
    """Return the columns of a row of BOINC's ``user``.

    An empty choice of apps means all of them to BOINC, so the choice is always written.
    The password cannot be carried over: it is stored in another form. A random one stands
    in its place, which nobody knows.
    """
    apps = "".join(f"<app_id>{number}</app_id>\n" for number in row.app_ids)
    preferences = (
        "<project_preferences>\n"
        f"<project_specific>\n<max_level>{escape(row.max_level)}</max_level>\n"
        f"</project_specific>\n{apps}</project_preferences>\n"
    )
    return {
        "id": row.user_id,
        "create_time": row.created_at,
        "email_addr": row.email,
        "name": row.name or row.email.partition("@")[0],
        "authenticator": row.key,
        "total_credit": row.total_credit,
        "expavg_credit": row.average_credit,
        "expavg_time": row.average_at,
        "project_prefs": preferences.encode(),
        "passwd_hash": secrets.token_hex(16),
        "cross_project_id": secrets.token_hex(16),
        "show_hosts": 0,
        "send_email": 0,
    }


def host_values(row: HostRow) -> dict[str, object]:
    """Return the columns of a row of BOINC's ``host``."""
    return {
        "id": row.host_id,
        "create_time": row.created_at,
        "userid": row.user_id,
        "rpc_seqno": row.rpc_seqno,
        "rpc_time": row.seen_at,
        "total_credit": row.total_credit,
        "expavg_credit": row.average_credit,
        "expavg_time": row.average_at,
        "domain_name": row.domain_name,
        "on_frac": 1.0,
        "connected_frac": 1.0,
        "active_frac": 1.0,
        "cpu_efficiency": 1.0,
        "duration_correction_factor": 1.0,
        "p_ncpus": row.ncpus,
        "p_vendor": row.vendor,
        "p_model": row.model,
        "p_fpops": row.fpops,
        "os_name": row.os_name,
        "os_version": row.os_version,
        "m_nbytes": row.memory_bytes,
        "d_free": row.disk_free_bytes,
        "host_cpid": row.cpid,
        "max_results_day": BLACKLISTED if row.banned else 0,
    }


def missing_rows(
    wanted: Sequence[Mapping[str, object]],
    present: Mapping[int, str],
    taken: Collection[str],
    known_by: str,
) -> list[Mapping[str, object]]:
    """Return those rows that are not there yet; what is there is left as it is.

    Args:
        wanted: rows to be there.
        present: number of each row there → what it is known by.
        taken: what rows there are known by, where that must be unique; else empty.
        known_by: the column that tells one from another.

    Raises:
        Conflict: ``STO-B073`` a number or an address is somebody else's.
    """
    missing = []
    for row in wanted:
        number, mark = int(str(row["id"])), str(row[known_by])
        there = present.get(number)
        if there is None and mark in taken:
            raise Conflict("STO-B073", f"{known_by} of row {number} is taken there")
        if there is not None and there != mark:
            raise Conflict(
                "STO-B073",
                f"number {number} belongs to somebody else in the stock project",
                hint="move into a project that has no volunteers of its own yet",
            )
        if there is None:
            missing.append(row)
    return missing


def known_workunits(connection: Connection, names: AbstractSet[str]) -> frozenset[str]:
    """Return those of `names` that the project has made."""
    name = schema.workunits.c.name
    query = select(name).where(name.in_(sorted(names)))
    return frozenset(connection.scalars(query))


def read_users(
    connection: Connection,
    open_account: Callable[[int], Account],
    apps: Mapping[str, int],
    *,
    weak: bool,
) -> list[UserRow]:
    """Return every account.

    Args:
        connection: to the engine's tables.
        open_account: number → account with its keys.
        apps: level → number of its app in the stock project.
        weak: take the weak keys, by which most hosts are attached, as BOINC's one key.
    """
    users, people = schema.users, schema.people
    query = select(users, people).outerjoin(people, people.c.user_id == users.c.id)
    found = []
    for row in connection.execute(query.order_by(users.c.id)):
        account = open_account(row.id)
        allowed = LEVELS[: LEVELS.index(row.max_level) + 1]
        found.append(
            UserRow(
                user_id=row.id,
                email=row.email,
                key=account.weak_key if weak else account.key,
                name=row.name or "",
                max_level=row.max_level,
                app_ids=tuple(apps[level] for level in allowed if level in apps),
                created_at=row.created_at,
                total_credit=row.total_credit or 0.0,
                average_credit=row.average_credit or 0.0,
                average_at=row.average_at or 0,
            )
        )
    return found


def read_hosts(connection: Connection) -> list[HostRow]:
    """Return every computer."""
    hosts, records, bans = schema.hosts, schema.host_records, schema.bans
    banned = exists().where(bans.c.host_id == hosts.c.id).label("banned")
    query = select(hosts, records, banned).outerjoin(
        records, records.c.host_id == hosts.c.id
    )
    return [
        HostRow(
            host_id=row.id,
            user_id=row.user_id,
            cpid=row.cpid,
            rpc_seqno=row.rpc_seqno,
            created_at=row.created_at,
            seen_at=row.seen_at,
            domain_name=row.domain_name or "",
            vendor=row.vendor or "",
            model=row.model or "",
            os_name=row.os_name or "",
            os_version=row.os_version or "",
            ncpus=row.ncpus or 1,
            fpops=row.fpops or 0.0,
            memory_bytes=row.memory_bytes or 0.0,
            disk_free_bytes=row.disk_free_bytes or 0.0,
            total_credit=row.total_credit or 0.0,
            average_credit=row.average_credit or 0.0,
            average_at=row.average_at or 0,
            banned=bool(row.banned),
        )
        for row in connection.execute(query.order_by(hosts.c.id))
    ]
