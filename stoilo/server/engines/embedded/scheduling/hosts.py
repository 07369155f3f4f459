"""Which host calls: known, known by its CPID, or new; and what it says of itself."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import exists, func, insert, select, update

from stoilo.executor.messages import HostInfo
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.hosttrust import ban, is_banned
from stoilo.server.engines.interface import CopyState

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from stoilo.executor.messages import SchedulerRequest
    from stoilo.server.engines.embedded.people.accounts import User

__all__ = ["MAX_HOSTS", "Host", "find_host"]

MAX_HOSTS = 500
"""Hosts of one account in use; each is a row that nobody but its caller asked for."""

IN_USE_S = 30 * 86_400
"""A host that has not called for so long and holds no copy is not counted."""

TEXT_CHARS = 128
RECORD_EVERY_S = 3600
"""Free disk and the like change with every call; a record follows at that pace."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host that calls; `new` when its id has to be told to it."""

    id: int
    key: str
    new: bool


def find_host(
    connection: Connection, user: User, request: SchedulerRequest, now: int
) -> Host | None:
    """Return the calling host: known, known by its CPID, or new; None past `MAX_HOSTS`.

    A host belongs to one user for ever. A sequence number below the stored one means
    that the client's state was copied: the caller becomes a host of its own; one that has
    lost its id (detached, attached again) counts anew. A client that was told a new id
    makes itself a new CPID, so a known id may change its CPID.
    """
    table, records = schema.hosts, schema.host_records
    found = connection.execute(
        select(table, records)
        .outerjoin(records, records.c.host_id == table.c.id)
        .where(
            table.c.user_id == user.id,
            (table.c.cpid == request.cpid) | (table.c.id == request.host_id),
        )
    ).all()
    same = next((one for one in found if one.cpid == request.cpid), None)
    row = next((one for one in found if one.id == request.host_id), same)
    if row is None:
        return _new_host(connection, user, request, request.cpid, now)
    if request.host_id == row.id and request.rpc_seqno < row.rpc_seqno:
        copied = _new_host(connection, user, request, "", now)
        if copied is not None and is_banned(connection, row.id):
            ban(connection, copied.id, copied.key, now)  # copying is no way out
        return copied
    cpid = request.cpid if same is None else row.cpid
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(rpc_seqno=request.rpc_seqno, seen_at=now, cpid=cpid)
    )
    _follow(connection, row, request, now)
    return Host(row.id, cpid, row.id != request.host_id)


def _new_host(
    connection: Connection, user: User, request: SchedulerRequest, cpid: str, now: int
) -> Host | None:
    """Insert a host, unless the account has its number; without a CPID it is a copy."""
    table = schema.hosts
    copies = schema.copies
    holds = exists().where(
        copies.c.host_id == table.c.id,
        copies.c.state == CopyState.IN_PROGRESS.value,
    )
    query = select(func.count()).where(
        table.c.user_id == user.id, (table.c.seen_at >= now - IN_USE_S) | holds
    )
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


def _record(
    connection: Connection, host_id: int, request: SchedulerRequest, now: int
) -> None:
    """Begin the record of what a host says of itself, bounded."""
    values = {"host_id": host_id, "stored_at": now, **_said(request)}
    connection.execute(insert(schema.host_records).values(values))


def _follow(
    connection: Connection,
    row: Row,  # type: ignore[type-arg]  # of `hosts` with its record, or NULLs
    request: SchedulerRequest,
    now: int,
) -> None:
    """Bring a host's record up to date; a silent call forgets nothing."""
    if row.stored_at is None:
        _record(connection, row.id, request, now)
        return
    said = _said(request)
    stable = {name for name, value in said.items() if not isinstance(value, float)}
    changed = any(row._mapping[name] != said[name] for name in stable)  # noqa: SLF001
    due = changed or now - row.stored_at >= RECORD_EVERY_S
    if request.host != HostInfo() and due:
        table = schema.host_records
        connection.execute(
            update(table).where(table.c.host_id == row.id).values(stored_at=now, **said)
        )


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
