"""Which host calls: known, known by its CPID, or new; and what it says of itself."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, exists, func, insert, select, update

from stoilo.core.boinc.messages import HostInfo
from stoilo.server.db.store import is_writing
from stoilo.server.engines.embedded.accounts.host_trust import BY_OPERATOR, ban
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.embedded.scheduling.authenticate import RECORD_COLUMNS, Host
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from sqlalchemy import Connection, Update

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.accounts.accounts import User
    from stoilo.server.engines.embedded.scheduling.authenticate import (
        KnownHost,
        Visitor,
    )

# Hosts of one account in use; each is a row that nobody but its caller asked for
MAX_HOSTS = 500
# A host that has not called for so long and holds no result is not counted
IN_USE_S = 30 * 86_400
TEXT_CHARS = 128
# Free disk and the like change with every call; a record follows at that pace
RECORD_EVERY_S = 3600
# How late the stored time and number of a host's last call may be while nothing else of
# it is written. Shorter than a host counts as attached (`EngineOptions.seen_within_s`).
SEEN_EVERY_S = 300


def find_host(
    connection: Connection,
    visitor: Visitor,
    request: SchedulerRequest,
    last_call: int,
    now: int,
) -> Host | None:
    """Return the calling host: known, known by its CPID, or new; None past `MAX_HOSTS`.

    `last_call` is the number of the host's last call as it was when this one came, 0 when
    that is not remembered: one that waits here may be overtaken by its successor.

    A host belongs to one user for ever. A sequence number below the last one means
    that the client's state was copied: the caller becomes a host of its own; one that has
    lost its id (detached, attached again) counts anew. A client that was told a new id
    makes itself a new CPID, so a known id may change its CPID; not to one that another
    account's host has: that would be a copied one.
    """
    found, user = visitor.hosts, visitor.user
    same = next((one for one in found if one.cpid == request.cpid), None)
    known = next((one for one in found if one.id == request.host_id), same)
    if known is None:
        return _new_host(connection, user, request, request.cpid, now)
    last = last_call or known.rpc_seqno
    if request.host_id == known.id and request.rpc_seqno < last:
        copied = _new_host(connection, user, request, "", now)
        if copied is not None and known.ban is not None:
            ban(connection, copied.id, copied.key, now)  # copying is no way out
            return replace(copied, ban=BY_OPERATOR)
        return copied
    changes = same is None and visitor.owns_cpid
    cpid = request.cpid if changes else known.cpid
    anew = known.id != request.host_id
    _note_call(connection, known, request, cpid, now, anew=anew)
    _follow(connection, known, request, now)
    return Host(known.id, user.id, cpid, anew, known.created_at, known, known.ban)


def _note_call(
    connection: Connection,
    known: KnownHost,
    request: SchedulerRequest,
    cpid: str,
    now: int,
    *,
    anew: bool,
) -> None:
    """Write that a host called, where something else is written anyway or it is time."""
    due = anew or cpid != known.cpid or now - known.seen_at >= SEEN_EVERY_S
    if not (due or is_writing(connection)):
        return
    must_write(connection)
    values = {"seqno": request.rpc_seqno, "now": now, "called": cpid, "host": known.id}
    connection.execute(_call_update(), values)


@cache
def _call_update() -> Update:
    """Return the statement that :host called, with :seqno and under :called, at :now."""
    table = schema.hosts
    return (
        update(table)
        .where(table.c.id == bindparam("host"))
        .values(
            rpc_seqno=bindparam("seqno"),
            seen_at=bindparam("now"),
            cpid=bindparam("called"),
        )
    )


def _new_host(
    connection: Connection, user: User, request: SchedulerRequest, cpid: str, now: int
) -> Host | None:
    """Insert a host, unless the account has its number; without a CPID it is a result."""
    must_write(connection)
    table = schema.hosts
    results = schema.results
    holds = exists().where(
        results.c.host_id == table.c.id,
        results.c.state == ResultProgress.IN_PROGRESS.value,
    )
    query = select(func.count()).where(
        table.c.user_id == user.id, (table.c.seen_at >= now - IN_USE_S) | holds
    )
    if (connection.scalar(query) or 0) >= MAX_HOSTS:
        return None
    own = cpid or secrets.token_hex(16)
    made = connection.execute(
        insert(table).values(
            user_id=user.id,
            cpid=own,
            rpc_seqno=request.rpc_seqno if cpid else 0,
            created_at=now,
            seen_at=now,
        )
    )
    key = made.inserted_primary_key
    assert key is not None  # noqa: S101 - an insert of one row has a key
    _record(connection, key[0], request, now)
    return Host(key[0], user.id, own, new=True, created_at=now)


def _record(
    connection: Connection, host_id: int, request: SchedulerRequest, now: int
) -> None:
    values = {"host_id": host_id, "stored_at": now, **_said(request)}
    connection.execute(insert(schema.host_records).values(values))


def _follow(
    connection: Connection, known: KnownHost, request: SchedulerRequest, now: int
) -> None:
    """Bring a host's record up to date; a silent call forgets nothing."""
    if known.stored_at is None:
        must_write(connection)
        _record(connection, known.id, request, now)
        return
    said = _said(request)
    before = dict(zip(RECORD_COLUMNS, known.record, strict=True))
    stable = [name for name, value in said.items() if not isinstance(value, float)]
    changed = any(before[name] != said[name] for name in stable)
    due = changed or now - known.stored_at >= RECORD_EVERY_S
    if request.host != HostInfo() and due:
        must_write(connection)
        table = schema.host_records
        mine = table.c.host_id == known.id
        connection.execute(update(table).where(mine).values(stored_at=now, **said))


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
