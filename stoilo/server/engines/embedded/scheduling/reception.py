"""What an account's choices and a host's standing make of one scheduler call.

Before work is looked for: levels, wishes and room, each only ever made smaller. After:
what the client is to show and keep. The scheduler calls `receive`, then `Guest.complete`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stoilo.core.boinc.messages import SchedulerReply
from stoilo.server.engines.embedded.people.globalprefs import (
    exchange_global_preferences,
)
from stoilo.server.engines.embedded.people.preferences import (
    narrow_wishes,
    project_preferences,
)
from stoilo.server.engines.embedded.rules.conduct import pause_of
from stoilo.server.engines.embedded.rules.quotas import allowed_today, note_copies
from stoilo.server.engines.embedded.scheduling.dispatch import SECONDS_PER_COPY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.people.accounts import User
    from stoilo.server.engines.embedded.people.preferences import ProjectPreferences
    from stoilo.server.engines.embedded.rules.quotas import Allowance, Quota
    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.embedded.scheduling.visitors import Visitor

__all__ = ["Guest", "receive", "refuse_banned", "too_many_calls"]

BANNED_DELAY_S = 86_400.0
TOO_MANY_DELAY_S = 60.0
LONGEST_DELAY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller, with what is left to it after its own choices and its standing.

    Attributes:
        visitor: what is known of the caller.
        account: with the levels that its owner allows.
        user: the same with those of them that may be sent now.
        host: that calls.
        request: with the wishes of host and account, and no more asked than is allowed.
        chosen: preferences of the account.
        allowance: of the host, None when it asks for no work.
        now: s.
    """

    visitor: Visitor
    account: User
    user: User
    host: Host
    request: SchedulerRequest
    chosen: ProjectPreferences
    allowance: Allowance | None
    now: int

    @property
    def quotas(self) -> dict[str, Quota]:
        """The host's standing with every app, before this call."""
        return self.host.known.quotas if self.host.known else {}

    def complete(
        self,
        connection: Connection,
        reply: SchedulerReply,
        apps: Iterable[str],
        quotas: Mapping[str, Quota],
    ) -> SchedulerReply:
        """Return the reply with what the client shows and keeps.

        Args:
            connection: inside the call's transaction.
            reply: what the scheduler has to say.
            apps: of every copy that it hands out for the first time.
            quotas: the host's standing after what it has reported.
        """
        note_copies(connection, self.host.id, apps, quotas, self.now)
        messages, delay = reply.messages, reply.request_delay
        if self.allowance is not None:
            messages += self.allowance.messages
            delay = max(delay, min(float(self.allowance.delay_s), LONGEST_DELAY_S))
        shared = exchange_global_preferences(
            connection,
            self.user.id,
            self.visitor.preferences,
            self.request.global_preferences,
            self.now,
            weak=self.user.weak,
        )
        return replace(
            reply,
            messages=messages,
            request_delay=delay,
            user=self.visitor.info(self.host.id, self.now),
            project_preferences=project_preferences(self.chosen),
            global_preferences=shared,
        )


def receive(visitor: Visitor, host: Host, request: SchedulerRequest, now: int) -> Guest:
    """Return the caller with its request narrowed to what may be sent now."""
    user, chosen = visitor.user, visitor.user.chosen
    request = replace(request, wishes=narrow_wishes(request.wishes, chosen))
    wants_work = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
    if request.dont_send_work or not wants_work:
        return Guest(visitor, user, user, host, request, chosen, None, now)
    quotas = host.known.quotas if host.known else {}
    allowance = allowed_today(quotas, user.apps, request.ncpus, now)
    pause = pause_of(user.paused_until, now)
    if pause is not None:
        allowance = replace(pause, messages=pause.messages + allowance.messages)
    most = float(allowance.copies)
    request = replace(
        request,
        cpu_req_instances=min(request.cpu_req_instances, most),
        cpu_req_secs=min(request.cpu_req_secs, most * SECONDS_PER_COPY),
    )
    open_now = replace(user, apps=allowance.apps)
    return Guest(visitor, user, open_now, host, request, chosen, allowance, now)


def refuse_banned(user: User, request: SchedulerRequest) -> SchedulerReply | None:
    """Return the answer to a host of a banned account, None to any other.

    Its results are acknowledged, so that it forgets them, and not looked at.
    """
    if not user.banned:
        return None
    text = "The project's operators have banned this account [STO-E065]."
    return SchedulerReply(
        messages=(text,),
        request_delay=BANNED_DELAY_S,
        acks=tuple(dict.fromkeys(result.name for result in request.results)),
    )


def too_many_calls() -> SchedulerReply:
    """Return the answer to one who calls too often; nothing was read or lost."""
    text = "This account or address calls too often [STO-E068]."
    return SchedulerReply(messages=(text,), request_delay=TOO_MANY_DELAY_S)
