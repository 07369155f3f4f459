"""Who calls, in one query, and what the account's choices leave of what the host asks for.

Everything that a call needs to know before it looks at results comes from one row for each
host and app, because a query costs far more than a column. Levels, wishes and room are then
each only ever made smaller (`receive`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, and_, bindparam, or_, select

from stoilo.core.boinc.messages import SchedulerReply, UserInfo
from stoilo.server.engines.embedded.accounts.accounts import key_digest
from stoilo.server.engines.embedded.accounts.leaving import nothing_for_who_left
from stoilo.server.engines.embedded.accounts.preferences import (
    narrow_wishes,
    preferences_of,
)
from stoilo.server.engines.embedded.accounts.quotas import (
    Allowance,
    Quota,
    allowed_today,
    pause_of,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.files.app_versions import catalogue_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select, Table

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.accounts.preferences import ProjectPreferences
    from stoilo.server.engines.embedded.db.schema import AnyRow

SECONDS_PER_RESULT = 60.0  # what one result is taken to last when work for N s is asked


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the account: the caller, or one that it may be."""

    id: int  # its row
    user_id: int  # whose it is
    cpid: str  # its identity
    created_at: int  # s
    # what was stored of it, as ``host_…``; None when it has just been made
    row: AnyRow | None = None
    new: bool = False  # it does not know its number
    # why it gets no work, a workunit or `BY_OPERATOR`; None for no ban
    ban: int | None = None
    # its standing with every app that it has had
    quotas: dict[str, Quota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who calls, as far as the key tells."""

    chosen: ProjectPreferences  # of the account
    weak: bool  # it has shown the weak key: nothing of the account may change
    # those of the account with the identity or the number that was sent
    hosts: tuple[Host, ...]
    row: AnyRow  # of `_query`: the account's columns, and more

    @property
    def owns_cpid(self) -> bool:
        """Whether no other account was the first to call with the CPID that was sent."""
        return self.row.claimed_by in {None, self.row.id}

    def info(self, host: Host) -> UserInfo:
        """Return what the client shows of the account and a host."""
        row = self.row
        return UserInfo(
            id=row.id,
            name=row.name or f"volunteer {row.id}",
            created_at=row.created_at,
            total_credit=row.total_credit,
            host_total_credit=host.row.host_total_credit if host.row else 0.0,
        )


def find_visitor(connection: Connection, request: SchedulerRequest) -> Visitor | None:
    """Return who holds the (untrusted) key of a request; None for nobody."""
    digest = key_digest(request.authenticator)
    asked = {"digest": digest, "cpid": request.cpid, "host": request.host_id}
    rows = connection.execute(_query(), asked).all() if digest else []
    if not rows:
        return None
    row = rows[0]
    weak = row.weak_key_hash == digest
    return Visitor(preferences_of(row), weak, _hosts(rows), row)


def _hosts(rows: Sequence[AnyRow]) -> tuple[Host, ...]:
    found: dict[int, Host] = {}
    for row in rows:
        number = row.host_id
        if number is None:
            continue
        if number not in found:
            found[number] = Host(
                number,
                row.id,
                row.host_cpid,
                row.host_created_at,
                row,
                ban=row.host_ban,
            )
        if row.app_app is not None:
            columns = (f"app_{one.name}" for one in fields(Quota))
            values = (getattr(row, column) for column in columns)
            found[number].quotas[row.app_app] = Quota(*values)
    return tuple(found.values())


@cache
def _query() -> Select[Any]:
    """Return the query for the account with key :digest and host :host or :cpid."""
    users, hosts, apps = schema.users, schema.hosts, schema.host_apps
    key = bindparam("digest", type_=String)
    same = or_(hosts.c.cpid == bindparam("cpid"), hosts.c.id == bindparam("host"))
    first = hosts.alias("first")
    claimed_by = (  # whose host was the first with this identity
        select(first.c.user_id)
        .where(first.c.cpid == bindparam("cpid"))
        .order_by(first.c.id)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(
            users,
            *_labelled(hosts, "host"),
            *_labelled(apps, "app"),
            claimed_by.label("claimed_by"),
            catalogue_version().label("catalogue"),
        )
        .outerjoin(hosts, and_(hosts.c.user_id == users.c.id, same))
        .outerjoin(apps, apps.c.host_id == hosts.c.id)
        .where((users.c.key_hash == key) | (users.c.weak_key_hash == key))
    )


def _labelled(table: Table, prefix: str) -> list[Any]:
    return [column.label(f"{prefix}_{column.name}") for column in table.c]


BANNED_DELAY_S = 86_400.0
TOO_MANY_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller, with what is left to it after its own choices and its standing."""

    visitor: Visitor  # what is known of the caller
    apps: tuple[str, ...]  # those of the account's levels that may be sent now
    host: Host  # that calls
    # with the wishes of host and account, and no more asked than is allowed
    request: SchedulerRequest
    allowance: Allowance  # of the host, an empty one when it asks for no work
    now: int  # s


def wants_work(request: SchedulerRequest) -> bool:
    """Say whether the client asks for work."""
    wanted = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
    return wanted and not request.dont_send_work


def receive(visitor: Visitor, host: Host, request: SchedulerRequest, now: int) -> Guest:
    """Return the caller with its request narrowed to what may be sent now."""
    apps = visitor.chosen.levels
    request = replace(request, wishes=narrow_wishes(request.wishes, visitor.chosen))
    if not wants_work(request):
        return Guest(visitor, apps, host, request, Allowance((), 0), now)
    left = nothing_for_who_left(visitor.row.left_at)
    if left is not None:
        return Guest(visitor, (), host, request, left, now)
    allowance = allowed_today(host.quotas, apps, request.ncpus, now)
    pause = pause_of(visitor.row.paused_until, now)
    if pause is not None:
        allowance = replace(pause, messages=pause.messages + allowance.messages)
    most = float(allowance.results)
    request = replace(
        request,
        cpu_req_instances=min(request.cpu_req_instances, most),
        cpu_req_secs=min(request.cpu_req_secs, most * SECONDS_PER_RESULT),
    )
    return Guest(visitor, allowance.apps, host, request, allowance, now)


def refuse_banned(visitor: Visitor, request: SchedulerRequest) -> SchedulerReply | None:
    """Return the answer to a host of a banned account, None to any other.

    Its results are acknowledged, so that it forgets them, and not looked at.
    """
    if not visitor.row.banned_at:
        return None
    text = "The project's operators have banned this account [STO-E041]."
    return SchedulerReply(
        messages=(text,),
        request_delay=BANNED_DELAY_S,
        acks=tuple(dict.fromkeys(result.name for result in request.results)),
    )


def too_many_calls() -> SchedulerReply:
    """Return the answer to one who calls too often; nothing was read or lost."""
    text = "This account or address calls too often [STO-E068]."
    return SchedulerReply(messages=(text,), request_delay=TOO_MANY_DELAY_S)
