"""When a client shall call again.

A stock client calls by itself when a task ends, so one that has what it asked for is only
called for aborts. One that asked in vain would not ask again for ten minutes and more: it
is called soon while there was work a short time ago, and seldom in quiet times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.scheduling.dispatch import Pace
    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.embedded.scheduling.presence import Presence

__all__ = ["is_idle", "next_call", "wants_copies"]

RECENT_S = 900


def wants_copies(request: SchedulerRequest) -> bool:
    """Say whether the client asks for work."""
    wanted = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
    return wanted and not request.dont_send_work


def is_idle(request: SchedulerRequest, reply: SchedulerReply) -> bool:
    """Say whether a client asked for work in vain."""
    return wants_copies(request) and not reply.results


def next_call(
    connection: Connection,
    host: Host,
    request: SchedulerRequest,
    reply: SchedulerReply,
    presence: Presence,
    pace: Pace,
    now: int,
) -> float:
    """Return after how many s a client shall call again at the latest."""
    if request.own_program:
        return pace.next_rpc_delay_s
    if not is_idle(request, reply):
        return max(pace.busy_rpc_delay_s, pace.next_rpc_delay_s)
    if _had_work(connection, host, presence, now - RECENT_S):
        return pace.next_rpc_delay_s
    return max(pace.quiet_rpc_delay_s, pace.next_rpc_delay_s)


def _had_work(
    connection: Connection, host: Host, presence: Presence, since: int
) -> bool:
    """Say whether a host is new since then, or has had a copy."""
    if host.created_at >= since:
        return True
    known = presence.worked_at(host.id)
    if known is None:
        copies = schema.copies
        query = select(func.max(copies.c.sent_at)).where(copies.c.host_id == host.id)
        known = int(connection.scalar(query) or 0)
        presence.note_work(host.id, known)
    return known >= since
