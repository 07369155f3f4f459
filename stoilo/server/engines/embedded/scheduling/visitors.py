"""Who calls: account, hosts that it may be, what is known of them. One query.

Everything that a call needs to know before it looks at copies comes from one row for each
host and app, because a query costs far more than a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import String, and_, bindparam, or_, select

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.people.accounts import key_digest, user_of
from stoilo.server.engines.embedded.people.credit import (
    Standing,
    standing_of,
    user_info,
)
from stoilo.server.engines.embedded.people.globalprefs import StoredPreferences
from stoilo.server.engines.embedded.rules.quotas import Quota
from stoilo.server.engines.embedded.wire.catalogue import catalogue_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row, ScalarSelect, Select, Table

    from stoilo.core.boinc.messages import SchedulerRequest, UserInfo
    from stoilo.server.engines.embedded.people.accounts import User

__all__ = ["RECORD_COLUMNS", "WISH_COLUMNS", "KnownHost", "Visitor", "find_visitor"]

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
WISH_COLUMNS: Final = (
    "max_level",
    "require_review",
    "require_public_source",
    "topics",
)
_QUOTA: Final = ("per_cpu", "day", "issued", "errors_in_row", "paused_until")
_CREDIT: Final = ("total_credit", "average_credit", "average_at")


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One host of the account that the caller may be.

    Attributes:
        id: its row.
        cpid: its identity.
        rpc_seqno: of its last call that was stored.
        created_at: s.
        seen_at: when it last called, as stored, s.
        stored_at: when its record was written, s; None without one.
        record: what it said of itself, by `RECORD_COLUMNS`.
        wishes: what it asked not to be sent, by `WISH_COLUMNS`; None for nothing.
        ban: workunit for which it gets no work, see `hosttrust.find_ban`; None for none.
        credit: its standing.
        quotas: with every app that it has had.
    """

    id: int
    cpid: str
    rpc_seqno: int
    created_at: int
    seen_at: int
    stored_at: int | None
    record: tuple[object, ...]
    wishes: tuple[object, ...] | None
    ban: int | None
    credit: Standing
    quotas: dict[str, Quota]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who calls, as far as the key tells.

    Attributes:
        user: the account.
        trusted: its hosts are the operator's own.
        hosts: those of the account with the identity or the number that was sent.
        preferences: its global preferences, None where there are none.
        catalogue: version of what all hosts run (`catalogue`).
        row: everything else.
    """

    user: User
    trusted: bool
    hosts: tuple[KnownHost, ...]
    preferences: StoredPreferences | None
    catalogue: str
    row: Row  # type: ignore[type-arg]  # of `_query`

    @property
    def owns_cpid(self) -> bool:
        """Whether nobody else was the first to call with the CPID that was sent."""
        return self.row.claimed_by in {None, self.user.id}

    def info(self, host_id: int, now: int) -> UserInfo:
        """Return what the client shows of the account and a host, new ones included."""
        host = next((one.credit for one in self.hosts if one.id == host_id), Standing())
        person = standing_of(*_of(self.row, "person", _CREDIT))
        return user_info(self.user.id, self.row, person, host, now)


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


def _hosts(rows: Sequence[Row]) -> tuple[KnownHost, ...]:  # type: ignore[type-arg]  # of `_query`
    """Return the hosts of rows of which each is one host and one app."""
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


def _host(row: Row) -> KnownHost:  # type: ignore[type-arg]  # of `_query`
    """Return a row's host, without its quotas."""
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
        credit=standing_of(*_of(row, "record", _CREDIT)),
        quotas={},
    )


def _of(row: Row, prefix: str, names: Sequence[str]) -> tuple[Any, ...]:  # type: ignore[type-arg]  # of `_query`
    """Return the columns of one table."""
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
            *_labelled(people, "person", _CREDIT),
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
    """Return columns of a table under names that no other table's have."""
    return [table.c[name].label(f"{prefix}_{name}") for name in names]
