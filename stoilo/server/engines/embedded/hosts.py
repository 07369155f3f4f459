"""Which host calls: known, known by its CPID, or new."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
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
    table = schema.hosts
    mine = select(table).where(table.c.user_id == user.id)
    same = connection.execute(mine.where(table.c.cpid == request.cpid)).first()
    row = connection.execute(mine.where(table.c.id == request.host_id)).first() or same
    if row is None:
        return _new_host(connection, user, request.cpid, request.rpc_seqno, now)
    if request.host_id == row.id and request.rpc_seqno < row.rpc_seqno:
        copied = secrets.token_hex(16)
        return _new_host(connection, user, copied, 0, now)
    cpid = request.cpid if same is None else row.cpid
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(rpc_seqno=request.rpc_seqno, seen_at=now, cpid=cpid)
    )
    return Host(row.id, cpid, row.id != request.host_id)


def _new_host(
    connection: Connection, user: User, cpid: str, seqno: int, now: int
) -> Host | None:
    """Insert a host, unless the account has its number."""
    table = schema.hosts
    query = select(func.count()).where(table.c.user_id == user.id)
    if (connection.scalar(query) or 0) >= MAX_HOSTS:
        return None
    made = connection.execute(
        insert(table).values(
            user_id=user.id, cpid=cpid, rpc_seqno=seqno, created_at=now, seen_at=now
        )
    )
    key = made.inserted_primary_key
    assert key is not None  # noqa: S101 - an insert of one row has a key
    return Host(key[0], cpid, new=True)
