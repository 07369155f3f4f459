"""When hosts called, when they shall call again, and what they are told meanwhile.

What is remembered of them between two calls need not be stored each time. Lost at a
restart: the number of a host's last call is then the stored one, at most some minutes old
(`hosts.SEEN_EVERY_S`), and when it last had work is looked up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from stoilo.server.engines.embedded.accounts.host_filter import LEVELS, allowed_apps
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.scheduling.authenticate import wants_work
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.accounts.accounts import User
    from stoilo.server.engines.embedded.scheduling.authenticate import Host
    from stoilo.server.engines.embedded.scheduling.dispatch import Pace

# Hosts; those that have not called for longest are forgotten
MOST: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Seen:
    """One host: number of its last call; when it last was given work, None: not known."""

    rpc_seqno: int = 0
    worked_at: int | None = None


class HostActivity:
    """The hosts that have called lately; safe for several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._hosts: OrderedDict[int, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def last_call(self, host_id: int) -> int:
        """Return the number of a host's last call, 0 when it is not known."""
        return self._hosts.get(host_id, _Seen()).rpc_seqno

    def worked_at(self, host_id: int) -> int | None:
        """Return when a host was last given work, s; None when it is not known."""
        return self._hosts.get(host_id, _Seen()).worked_at

    def note_call(self, host_id: int, rpc_seqno: int, *, anew: bool = False) -> None:
        """Remember that a host called; its numbers grow unless it counts anew."""
        with self._lock:
            seen = self._hosts.pop(host_id, _Seen())
            last = rpc_seqno if anew else max(seen.rpc_seqno, rpc_seqno)
            self._hosts[host_id] = replace(seen, rpc_seqno=last)
            if len(self._hosts) > self._most:
                self._hosts.popitem(last=False)

    def note_work(self, host_id: int, at: int) -> None:
        """Remember when a host that has called was last given work, s; 0 for never."""
        with self._lock:
            if host_id in self._hosts:
                seen = self._hosts[host_id]
                self._hosts[host_id] = replace(seen, worked_at=at)


RECENT_S = 900


def is_idle(request: SchedulerRequest, reply: SchedulerReply) -> bool:
    """Say whether a client asked for work in vain."""
    return wants_work(request) and not reply.results


# A stock client calls by itself when a task ends, so one that has what it asked for is only
# called for aborts. One that asked in vain would not ask again for ten minutes and more: it
# is called soon while there was work a short time ago, and seldom in quiet times.
def next_call(
    connection: Connection,
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
    if _had_work(connection, host, activity, now - RECENT_S):
        return pace.next_rpc_delay_s
    return max(pace.quiet_rpc_delay_s, pace.next_rpc_delay_s)


def _had_work(
    connection: Connection, host: Host, activity: HostActivity, since: int
) -> bool:
    """Say whether a host is new since then, or has had a result."""
    if host.created_at >= since:
        return True
    known = activity.worked_at(host.id)
    if known is None:
        results = schema.results
        query = select(func.max(results.c.sent_at)).where(results.c.host_id == host.id)
        known = int(connection.scalar(query) or 0)
        activity.note_work(host.id, known)
    return known >= since


FIRST_CALLS = 3
EVERY_CALLS = 100


def level_notice(
    connection: Connection, user: User, request: SchedulerRequest
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
    allowed = set(allowed_apps(user.apps, request.wishes))
    if not waiting or waiting & allowed:
        return ()
    levels = ", ".join(level for level in LEVELS if level in waiting)
    notice = (
        f"All work of this project needs a level that you do not allow ({levels}). "
        "Nothing is wrong; you may allow it in your preferences for this project."
    )
    return (notice,)
