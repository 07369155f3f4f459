"""Who calls, in one query, and what the account's choices leave of what the host asks for.

Everything that a call needs to know before it looks at results comes from one row for each
host and app, because a query costs far more than a column. Levels, wishes and room are then
each only ever made smaller (`receive`); `Guest.complete` adds what the client shows and
keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import String, and_, bindparam, or_, select

from stoilo.core.boinc.messages import SchedulerReply, UserInfo
from stoilo.server.engines.embedded.accounts.accounts import key_digest, user_of
from stoilo.server.engines.embedded.accounts.global_preferences import (
    StoredPreferences,
    exchange_global_preferences,
)
from stoilo.server.engines.embedded.accounts.host_filter import WISH_COLUMNS
from stoilo.server.engines.embedded.accounts.preferences import (
    narrow_wishes,
    project_preferences,
)
from stoilo.server.engines.embedded.accounts.quotas import (
    Quota,
    allowed_today,
    note_results,
    pause_of,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.files.app_versions import catalogue_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, ScalarSelect, Select, Table

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.accounts.accounts import User
    from stoilo.server.engines.embedded.accounts.quotas import Allowance
    from stoilo.server.engines.embedded.db.schema import AnyRow

RECORD_COLUMNS: Final = (
    "domain_name",
    "vendor",
    "model",
    "os_name",
    "os_version",
    "platform",
    "client",
    "ncpus",
    "fpops",
    "memory_bytes",
    "disk_free_bytes",
)
_QUOTA: Final = ("per_cpu", "day", "issued", "errors_in_row", "paused_until")


SECONDS_PER_RESULT = 60.0  # what one result is taken to last when work for N s is asked


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One host of the account that the caller may be."""

    id: int  # its row
    cpid: str  # its identity
    rpc_seqno: int  # of its last call that was stored
    created_at: int  # s
    seen_at: int  # when it last called, as stored, s
    stored_at: int | None  # when its record was written, s; None without one
    record: tuple[object, ...]  # what it said of itself, by `RECORD_COLUMNS`
    # what it asked not to be sent, by `WISH_COLUMNS`; None for nothing
    wishes: tuple[object, ...] | None
    # workunit for which it gets no work, or `BY_OPERATOR`; None for none
    ban: int | None
    credit: float  # cobblestones
    quotas: dict[str, Quota]  # with every app that it has had


@dataclass(frozen=True, slots=True)
class Host:
    """The host that calls; `new` when its id has to be told to it."""

    id: int  # its row
    user_id: int  # whose it is
    key: str  # its identity (CPID)
    new: bool  # it does not know its number
    created_at: int  # s
    # what was stored of it, None when it has just been made
    known: KnownHost | None = None
    # why it gets no work, a workunit or `BY_OPERATOR`; None for no ban
    ban: int | None = None


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who calls, as far as the key tells."""

    user: User  # the account
    trusted: bool  # its hosts are the operator's own
    # those of the account with the identity or the number that was sent
    hosts: tuple[KnownHost, ...]
    # its global preferences, None where there are none
    preferences: StoredPreferences | None
    catalogue: str  # version of what all hosts run (`Catalogue`)
    # everything else
    row: AnyRow  # of `_query`

    @property
    def owns_cpid(self) -> bool:
        """Whether nobody else was the first to call with the CPID that was sent."""
        return self.row.claimed_by in {None, self.user.id}

    def info(self, host_id: int) -> UserInfo:
        """Return what the client shows of the account and a host, new ones included."""
        credit = next((one.credit for one in self.hosts if one.id == host_id), 0.0)
        row, number = self.row, self.user.id
        return UserInfo(
            id=number,
            name=row.name or f"volunteer {number}",
            created_at=row.created_at,
            total_credit=row.person_total_credit or 0.0,
            host_total_credit=credit,
            venue=row.venue or "",
        )


def find_visitor(connection: Connection, request: SchedulerRequest) -> Visitor | None:
    """Return who holds the (untrusted) key of a request; None for nobody."""
    digest = key_digest(request.authenticator)
    if not digest:
        return None
    asked = {"digest": digest, "cpid": request.cpid, "host": request.host_id}
    rows = connection.execute(_query(), asked).all()
    if not rows:
        return None
    row = rows[0]
    stored = None
    if row.preferences_at is not None:
        stored = StoredPreferences(row.preferences_at, row.document)
    return Visitor(
        user=user_of(row, digest),
        trusted=row.trusted is not None,
        hosts=_hosts(rows),
        preferences=stored,
        catalogue=row.catalogue or "",
        row=row,
    )


def _hosts(rows: Sequence[AnyRow]) -> tuple[KnownHost, ...]:
    found: dict[int, KnownHost] = {}
    for row in rows:
        if row.host_id is None:
            continue
        host = found.get(row.host_id)
        if host is None:
            host = found[row.host_id] = _host(row)
        if row.quota_app is not None:
            host.quotas[row.quota_app] = Quota(*_of(row, "quota", _QUOTA))
    return tuple(found.values())


def _host(row: AnyRow) -> KnownHost:
    return KnownHost(
        id=row.host_id,
        cpid=row.host_cpid,
        rpc_seqno=row.host_rpc_seqno,
        created_at=row.host_created_at,
        seen_at=row.host_seen_at,
        stored_at=row.record_stored_at,
        record=_of(row, "record", RECORD_COLUMNS),
        wishes=None if row.wish_host_id is None else _of(row, "wish", WISH_COLUMNS),
        ban=row.ban_workunit_id,
        credit=row.record_total_credit or 0.0,
        quotas={},
    )


def _of(row: AnyRow, prefix: str, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(row, f"{prefix}_{name}") for name in names)


@cache
def _query() -> Select[Any]:
    """Return the query for the account with key :digest and host :host or :cpid."""
    users, people, hosts = schema.users, schema.people, schema.hosts
    chosen, shared = schema.preferences, schema.global_preferences
    records, wishes, quotas = schema.host_records, schema.wishes, schema.quotas
    bans, trusted = schema.bans, schema.trusted_users
    conduct = schema.account_standings
    key = bindparam("digest", type_=String)
    mine = hosts.c.user_id == users.c.id
    same = or_(hosts.c.cpid == bindparam("cpid"), hosts.c.id == bindparam("host"))
    return (
        select(
            users.c.id,
            users.c.max_level,
            users.c.weak_key_hash,
            users.c.password_hash,
            users.c.created_at,
            *(column for column in chosen.c if column.name != "user_id"),
            people.c.name,
            people.c.venue,
            people.c.banned_at,
            people.c.total_credit.label("person_total_credit"),
            trusted.c.user_id.label("trusted"),
            conduct.c.paused_until,
            _claimed_by().label("claimed_by"),
            shared.c.modified_at.label("preferences_at"),
            shared.c.document,
            *_labelled(hosts, "host", hosts.c.keys()),
            *_labelled(records, "record", records.c.keys()),
            *_labelled(wishes, "wish", wishes.c.keys()),
            *_labelled(quotas, "quota", quotas.c.keys()),
            bans.c.workunit_id.label("ban_workunit_id"),
            catalogue_version().label("catalogue"),
        )
        .outerjoin(chosen, chosen.c.user_id == users.c.id)
        .outerjoin(people, people.c.user_id == users.c.id)
        .outerjoin(shared, shared.c.user_id == users.c.id)
        .outerjoin(trusted, trusted.c.user_id == users.c.id)
        .outerjoin(conduct, conduct.c.user_id == users.c.id)
        .outerjoin(hosts, and_(mine, same))
        .outerjoin(records, records.c.host_id == hosts.c.id)
        .outerjoin(wishes, wishes.c.host_id == hosts.c.id)
        .outerjoin(bans, bans.c.host_id == hosts.c.id)
        .outerjoin(quotas, quotas.c.host_id == hosts.c.id)
        .where((users.c.key_hash == key) | (users.c.weak_key_hash == key))
    )


def _claimed_by() -> ScalarSelect[Any]:
    """Return the account whose host was the first with identity :cpid, or NULL."""
    first = schema.hosts.alias("first")
    return (
        select(first.c.user_id)
        .where(first.c.cpid == bindparam("cpid"))
        .order_by(first.c.id)
        .limit(1)
        .scalar_subquery()
    )


def _labelled(table: Table, prefix: str, names: Sequence[str]) -> list[Any]:
    return [table.c[name].label(f"{prefix}_{name}") for name in names]


BANNED_DELAY_S = 86_400.0
TOO_MANY_DELAY_S = 60.0
LONGEST_DELAY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller, with what is left to it after its own choices and its standing."""

    visitor: Visitor  # what is known of the caller
    user: User  # the account, with those of its levels that may be sent now
    host: Host  # that calls
    # with the wishes of host and account, and no more asked than is allowed
    request: SchedulerRequest
    allowance: Allowance | None  # of the host, None when it asks for no work
    now: int  # s

    @property
    def quotas(self) -> dict[str, Quota]:
        """The host's standing with every app, before this call."""
        return self.host.known.quotas if self.host.known else {}

    def complete(
        self,
        connection: Connection,
        reply: SchedulerReply,  # what the scheduler has to say
        apps: Iterable[str],  # of every result that it hands out for the first time
        quotas: Mapping[str, Quota],  # the host's standing after what it has reported
    ) -> SchedulerReply:
        """Return the reply with what the client shows and keeps."""
        note_results(connection, self.host.id, apps, quotas, self.now)
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
            user=self.visitor.info(self.host.id),
            project_preferences=project_preferences(self.user.chosen),
            global_preferences=shared,
        )


def wants_work(request: SchedulerRequest) -> bool:
    """Say whether the client asks for work."""
    wanted = request.cpu_req_secs > 0 or request.cpu_req_instances > 0
    return wanted and not request.dont_send_work


def receive(visitor: Visitor, host: Host, request: SchedulerRequest, now: int) -> Guest:
    """Return the caller with its request narrowed to what may be sent now."""
    user = visitor.user
    request = replace(request, wishes=narrow_wishes(request.wishes, user.chosen))
    if not wants_work(request):
        return Guest(visitor, user, host, request, None, now)
    quotas = host.known.quotas if host.known else {}
    allowance = allowed_today(quotas, user.apps, request.ncpus, now)
    pause = pause_of(user.paused_until, now)
    if pause is not None:
        allowance = replace(pause, messages=pause.messages + allowance.messages)
    most = float(allowance.results)
    request = replace(
        request,
        cpu_req_instances=min(request.cpu_req_instances, most),
        cpu_req_secs=min(request.cpu_req_secs, most * SECONDS_PER_RESULT),
    )
    open_now = replace(user, apps=allowance.apps)
    return Guest(visitor, open_now, host, request, allowance, now)


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
