"""Which host calls: known, known by its CPID, or new; and what it says of itself."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update

from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.executor.messages import SchedulerRequest
    from stoilo.server.engines.embedded.accounts import User

__all__ = ["MAX_HOSTS", "Host", "find_host"]

MAX_HOSTS = 500
"""Hosts of one account; each is a row that nobody but its caller asked for."""

TEXT_CHARS = 128
RECORD_EVERY_S = 3600
"""Free disk and the like change with every call; a record follows at that pace."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host that calls; `new` when its id has to be told to it."""

    id: int
    key: str
    new: bool
    banned: bool = False


def find_host(
    connection: Connection, user: User, request: SchedulerRequest, now: int
) -> Host | None:
    """Return the calling host: known, known by its CPID, or new; None past `MAX_HOSTS`.

    A host belongs to one user for ever. A sequence number below the stored one means
    that the client's state was copied: the caller becomes a host of its own; one that has
    lost its id (detached, attached again) counts anew. A client that was told a new id
    makes itself a new CPID, so a known id may change its CPID.
    """
    table = schema.hosts
    mine = select(table).where(table.c.user_id == user.id)
    same = connection.execute(mine.where(table.c.cpid == request.cpid)).first()
    row = connection.execute(mine.where(table.c.id == request.host_id)).first() or same
    if row is None:
        return _new_host(connection, user, request, request.cpid, now)
    if request.host_id == row.id and request.rpc_seqno < row.rpc_seqno:
        copied = _new_host(connection, user, request, "", now)
        return copied and _banned_like(connection, copied, row.id)
    cpid = request.cpid if same is None else row.cpid
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(rpc_seqno=request.rpc_seqno, seen_at=now, cpid=cpid)
    )
    banned = _record(connection, row.id, request, now)
    return Host(row.id, cpid, row.id != request.host_id, banned)


def _new_host(
    connection: Connection, user: User, request: SchedulerRequest, cpid: str, now: int
) -> Host | None:
    """Insert a host, unless the account has its number; without a CPID it is a copy."""
    table = schema.hosts
    query = select(func.count()).where(table.c.user_id == user.id)
    if (connection.scalar(query) or 0) >= MAX_HOSTS:
        return None
    made = connection.execute(
        insert(table).values(
            user_id=user.id,
            cpid=cpid or secrets.token_hex(16),
            rpc_seqno=request.rpc_seqno if cpid else 0,
            created_at=now,
            seen_at=now,
        )
    )
    key = made.inserted_primary_key
    assert key is not None  # noqa: S101 - an insert of one row has a key
    _record(connection, key[0], request, now)
    found = connection.scalar(select(table.c.cpid).where(table.c.id == key[0]))
    return Host(key[0], str(found), new=True)


def _banned_like(connection: Connection, host: Host, original: int) -> Host:
    """Return a copied host, banned if the one that it was copied from is."""
    table = schema.host_records
    since = connection.scalar(
        select(table.c.banned_at).where(table.c.host_id == original)
    )
    if not since:
        return host
    connection.execute(
        update(table).where(table.c.host_id == host.id).values(banned_at=since)
    )
    return replace(host, banned=True)


def _record(
    connection: Connection, host_id: int, request: SchedulerRequest, now: int
) -> bool:
    """Keep what the host says of itself, bounded; returns whether it is banned."""
    table = schema.host_records
    row = connection.execute(select(table).where(table.c.host_id == host_id)).first()
    said = _said(request)
    if row is None:
        connection.execute(insert(table).values(host_id=host_id, stored_at=now, **said))
        return False
    stable = {name for name, value in said.items() if not isinstance(value, float)}
    changed = any(row._mapping[name] != said[name] for name in stable)  # noqa: SLF001
    if changed or now - row.stored_at >= RECORD_EVERY_S:
        connection.execute(
            update(table)
            .where(table.c.host_id == host_id)
            .values(stored_at=now, **said)
        )
    return bool(row.banned_at)


def _said(request: SchedulerRequest) -> dict[str, str | int | float]:
    """Return the columns of what a host says; nothing of it is proven."""
    host, client = request.host, request.client
    platform = request.platforms[0] if request.platforms else ""
    return {
        "domain_name": host.domain_name[:TEXT_CHARS],
        "vendor": host.vendor[:TEXT_CHARS],
        "model": host.model[:TEXT_CHARS],
        "os_name": host.os_name[:TEXT_CHARS],
        "os_version": host.os_version[:TEXT_CHARS],
        "platform": platform[:64],
        "client": f"{client.major}.{client.minor}.{client.release}"[:32],
        "ncpus": request.ncpus,
        "fpops": host.fpops,
        "memory_bytes": host.memory_bytes,
        "disk_free_bytes": host.disk_free_bytes,
    }
