"""Which host calls: known, known by its CPID, or new; when it shall call again."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, exists, func, insert, select, update

from stoilo.core.boinc.messages import HostInfo
from stoilo.server.db.store import is_writing
from stoilo.server.engines.embedded.accounts.host_trust import BY_OPERATOR, ban
from stoilo.server.engines.embedded.accounts.preferences import LEVELS, allowed_apps
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.embedded.scheduling.authenticate import Host, wants_work
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Update

    from stoilo.core.boinc.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.scheduling.authenticate import Visitor
    from stoilo.server.engines.embedded.scheduling.dispatch import Pace

# Hosts of one account in use; each is a row that nobody but its caller asked for
MAX_HOSTS = 500
# A host that has not called for so long and holds no result is not counted
IN_USE_S = 30 * 86_400
TEXT_CHARS = 128
# Free disk and the like change with every call; a record follows at that pace
RECORD_EVERY_S = 3600
# How late the stored time and number of a host's last call may be while nothing else of
# it is written. Shorter than a host counts as attached (`status.SEEN_WITHIN_S`).
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
    found, user_id = visitor.hosts, visitor.row.id
    same = next((one for one in found if one.cpid == request.cpid), None)
    known = next((one for one in found if one.id == request.host_id), same)
    if known is None or known.row is None:
        return _new_host(connection, user_id, request, request.cpid, now)
    last = last_call or known.row.host_rpc_seqno
    if request.host_id == known.id and request.rpc_seqno < last:
        copied = _new_host(connection, user_id, request, "", now)
        if copied is not None and known.ban is not None:
            ban(connection, copied.id, now)  # copying is no way out
            return replace(copied, ban=BY_OPERATOR)
        return copied
    changes = same is None and visitor.owns_cpid
    cpid = request.cpid if changes else known.cpid
    anew = known.id != request.host_id
    seen_at = known.row.host_seen_at
    due = anew or cpid != known.cpid or now - seen_at >= SEEN_EVERY_S
    if due or is_writing(connection):  # where something else is written, or it is time
        must_write(connection)
        values = {"seqno": request.rpc_seqno, "now": now, "key": cpid, "row": known.id}
        connection.execute(_call_update(), values)
    _follow(connection, known.row, request, now)
    return replace(known, cpid=cpid, new=anew)


@cache
def _call_update() -> Update:
    """Return the statement that host :row called, with :seqno and under :key, at :now."""
    table = schema.hosts
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            rpc_seqno=bindparam("seqno"),
            seen_at=bindparam("now"),
            cpid=bindparam("key"),
        )
    )


def _new_host(
    connection: Connection, user_id: int, request: SchedulerRequest, cpid: str, now: int
) -> Host | None:
    """Insert a host, unless the account has its number; without a CPID it is a copied one."""
    must_write(connection)
    table = schema.hosts
    results = schema.results
    holds = exists().where(
        results.c.host_id == table.c.id,
        results.c.state == ResultProgress.IN_PROGRESS.value,
    )
    query = select(func.count()).where(
        table.c.user_id == user_id, (table.c.seen_at >= now - IN_USE_S) | holds
    )
    if (connection.scalar(query) or 0) >= MAX_HOSTS:
        return None
    own = cpid or secrets.token_hex(16)
    made = connection.execute(
        insert(table).values(
            user_id=user_id,
            cpid=own,
            rpc_seqno=request.rpc_seqno if cpid else 0,
            created_at=now,
            seen_at=now,
            stored_at=now,
            **_said(request),
        )
    )
    key = made.inserted_primary_key
    assert key is not None  # noqa: S101 - an insert of one row has a key
    return Host(key[0], user_id, own, now, new=True)


def _follow(
    connection: Connection, known: AnyRow, request: SchedulerRequest, now: int
) -> None:
    """Bring what is stored of a host up to date; a silent call forgets nothing."""
    said = _said(request)
    changed = any(
        getattr(known, f"host_{name}") != value
        for name, value in said.items()
        if not isinstance(value, float)
    )
    due = changed or now - known.host_stored_at >= RECORD_EVERY_S
    if request.host != HostInfo() and due:
        must_write(connection)
        table = schema.hosts
        mine = table.c.id == known.host_id
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


# What is remembered of hosts between two calls need not be stored each time. Lost at a
# restart: the number of a host's last call is then the stored one, at most some minutes old
# (`SEEN_EVERY_S`), and all count as long without work: they call again within a minute, not
# all at once. Those that have not called for longest are forgotten.
MOST_REMEMBERED: Final = 65_536


class HostActivity:
    """The hosts that have called lately; safe for several threads."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        # by host: number of its last call; when it last was given work, s
        self._hosts: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def last_call(self, host_id: int) -> int:
        """Return the number of a host's last call, 0 when it is not known."""
        return self._hosts.get(host_id, (0, 0))[0]

    def worked_at(self, host_id: int) -> int:
        """Return when a host was last given work, s; 0 when it is not known."""
        return self._hosts.get(host_id, (0, 0))[1]

    def note_call(self, host_id: int, rpc_seqno: int, *, anew: bool = False) -> None:
        """Remember that a host called; its numbers grow unless it counts anew."""
        with self._lock:
            last, worked_at = self._hosts.pop(host_id, (0, 0))
            last = rpc_seqno if anew else max(last, rpc_seqno)
            self._hosts[host_id] = (last, worked_at)
            if len(self._hosts) > self._most:
                self._hosts.popitem(last=False)

    def note_work(self, host_id: int, at: int) -> None:
        """Remember when a host that has called was last given work, s."""
        with self._lock:
            if host_id in self._hosts:
                self._hosts[host_id] = (self._hosts[host_id][0], at)


RECENT_S = 900


def is_idle(request: SchedulerRequest, reply: SchedulerReply) -> bool:
    """Say whether a client asked for work in vain."""
    return wants_work(request) and not reply.results


# A stock client calls by itself when a task ends, so one that has what it asked for is only
# called for aborts. One that asked in vain would not ask again for ten minutes and more: it
# is called soon while there was work a short time ago, and seldom in quiet times.
def next_call(
    host: Host,
    request: SchedulerRequest,
    reply: SchedulerReply,
    activity: HostActivity,
    pace: Pace,
    now: int,
) -> float:
    """Return after how many s a client shall call again at the latest."""
    if request.own_program:
        return pace.next_rpc_delay_s
    if not is_idle(request, reply):
        return max(pace.busy_rpc_delay_s, pace.next_rpc_delay_s)
    if max(host.created_at, activity.worked_at(host.id)) >= now - RECENT_S:
        return pace.next_rpc_delay_s
    return max(pace.quiet_rpc_delay_s, pace.next_rpc_delay_s)


FIRST_CALLS = 3
EVERY_CALLS = 100


def level_notice(
    connection: Connection, apps: Sequence[str], request: SchedulerRequest
) -> tuple[str, ...]:
    """Return the notice that all work there is needs levels which are not allowed.

    A client shows each notice again, so that only its first calls and then every
    hundredth bring one.
    """
    if request.rpc_seqno > FIRST_CALLS and request.rpc_seqno % EVERY_CALLS:
        return ()
    results, table = schema.results, schema.workunits
    waiting = set(
        connection.scalars(
            select(table.c.app)
            .join(results, results.c.workunit_id == table.c.id)
            .where(
                results.c.state == ResultProgress.UNSENT.value,
                table.c.outcome.is_(None),
            )
            .distinct()
        )
    )
    allowed = set(allowed_apps(apps, request.wishes))
    if not waiting or waiting & allowed:
        return ()
    levels = ", ".join(level for level in LEVELS if level in waiting)
    notice = (
        f"All work of this project needs a level that you do not allow ({levels}). "
        "Nothing is wrong; you may allow it in your preferences for this project."
    )
    return (notice,)
