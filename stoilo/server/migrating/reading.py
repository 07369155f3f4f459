"""Volunteers and computers of the embedded project, read for a move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import exists, select

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.hosts.host_filter import LEVELS
from stoilo.server.migrating.people import HostRow, UserRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.accounts.accounts import Account

__all__ = ["known_workunits", "read_hosts", "read_users"]


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
