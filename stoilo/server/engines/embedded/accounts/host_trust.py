"""Which hosts are alike, which have a record, which are ours, and which may not help.

A host's class follows BOINC's homogeneous redundancy: coarse is the family of operating
system and processor, fine tells families of processors apart. What a host says of itself
is not proven; a lie gets it results whose results it will not match.

A record is BOINC's ``consecutive_valid`` of a host and an app: valid results since the
last that was invalid, failed or never came. Only results that agreed with another host's
count, so nobody earns trust by being believed.

A ban follows a spot check that failed (`spot_checks`). It holds for the host and for
whoever calls with its identity; a cheat can come back as another host, without a record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select, update

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import UNDECIDED, Validity
from stoilo.server.engines.interface import ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import HostInfo

# Valid results in a row before a host may work alone (BOINC's number)
TRUSTED_AFTER: Final = 10
BANNED: Final = "STO-E041"
# In place of a workunit: banned by hand
BY_OPERATOR: Final = 0
_SYSTEMS: Final = ("android", "linux", "windows", "darwin", "freebsd")
_PROCESSORS: Final = (  # word in the vendor's name, coarse family, fine family
    ("intel", "x86", "intel"),
    ("amd", "x86", "amd"),
    ("macintosh", "powerpc", "powerpc"),
    ("arm", "arm", "arm"),
    ("apple", "arm", "apple"),
)
_FAMILIES: Final = {  # words of the model that all must be there, the special ones first
    "intel": (
        ("xeon",),
        ("celeron",),
        ("atom",),
        ("core",),
        ("pentium", "iii"),
        ("pentium", "ii"),
        ("pentium", "4"),
        ("pentium", "d"),
        ("pentium", "m"),
        ("pentium",),
    ),
    "amd": (
        ("epyc",),
        ("threadripper",),
        ("ryzen",),
        ("opteron",),
        ("phenom",),
        ("sempron",),
        ("turion",),
        ("duron",),
        ("athlon", "64"),
        ("athlon", "xp"),
        ("athlon", "mp"),
        ("athlon",),
    ),
}


def homogeneous_class(host: HostInfo, kind: Homogeneity) -> str:
    """Return the class that a host says it is of, empty when it cannot be told."""
    named = host.os_name.lower()
    system = next((one for one in _SYSTEMS if one in named), "")
    coarse, fine = _processor(host)
    if kind is Homogeneity.FINE:
        coarse = fine
    return f"{system} {coarse}" if system and coarse else ""


def _processor(host: HostInfo) -> tuple[str, str]:
    """Return coarse and fine family of a host's processor, empty when unknown."""
    vendor, model = host.vendor.lower(), host.model.lower()
    if not vendor and "arm" in model:
        vendor = "arm"  # some systems name the model only
    for word, coarse, fine in _PROCESSORS:
        if word in vendor:
            return coarse, " ".join([fine, *_family(fine, model)])
    return "", ""


def _family(maker: str, model: str) -> tuple[str, ...]:
    words = set(re.findall(r"[a-z0-9]+", model.partition("[")[0]))
    for family in _FAMILIES.get(maker, ()):
        if words.issuperset(family):
            return family
    return ()


def is_trusted(
    valid: int,  # its valid results in a row
    # uniform in [0, 1), unknown to the host: one in `valid` is checked anyway
    draw: float,
) -> bool:
    """Say whether a host may work alone this time."""
    return valid >= TRUSTED_AFTER and draw >= 1 / valid


def consecutive_valid(connection: Connection, host_id: int, app: str) -> int:
    """Return a host's valid results of an app in a row."""
    table = schema.histories
    count = connection.scalar(
        select(table.c.consecutive_valid).where(
            table.c.host_id == host_id, table.c.app == app
        )
    )
    return int(count or 0)


def note_valid(connection: Connection, results: Iterable[str]) -> None:
    """Count results that agreed with another host's."""
    table = schema.histories
    for host_id, app in _hosts_of(connection, results):
        changed = connection.execute(
            update(table)
            .where(table.c.host_id == host_id, table.c.app == app)
            .values(consecutive_valid=table.c.consecutive_valid + 1)
        )
        if not changed.rowcount:
            connection.execute(
                insert(table).values(host_id=host_id, app=app, consecutive_valid=1)
            )


def note_failed(connection: Connection, results: Iterable[str]) -> None:
    """Begin again with the hosts of results that were invalid, failed or never came."""
    table = schema.histories
    for host_id, app in set(_hosts_of(connection, results)):
        connection.execute(
            update(table)
            .where(table.c.host_id == host_id, table.c.app == app)
            .values(consecutive_valid=0)
        )


def _hosts_of(connection: Connection, results: Iterable[str]) -> list[tuple[int, str]]:
    table, of = schema.results, schema.workunits
    names = list(results)
    if not names:
        return []
    rows = connection.execute(
        select(table.c.host_id, of.c.app)
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.name.in_(names), table.c.host_id != 0)
    )
    return [(row.host_id, row.app) for row in rows]


def trust_account(
    connection: Connection, email: str, now: int, *, trusted: bool = True
) -> None:
    """Let an account's hosts check others again (the operator's own), or no longer.

    Raises:
        UsageError: ``STO-E040`` when there is no such account, or one made over the web:
            anybody may have taken that address.
    """
    users, table = schema.users, schema.trusted_users
    found = select(users.c.id, users.c.password_hash).where(users.c.email == email)
    row = connection.execute(found).first()
    if trusted and row is not None and row.password_hash:
        raise UsageError(
            "STO-E040",
            f"the account of {email[:100]!r} was made over the web: nobody knows by whom",
            hint="trust one that you made, or gave new keys, with `stoilo boinc account`",
        )
    user_id = None if row is None else row.id
    if user_id is None:
        raise UsageError(
            "STO-E040",
            f"there is no account of {email[:100]!r}",
            hint="make it with `stoilo boinc account`",
        )
    known = is_trusted_account(connection, user_id)
    if trusted and not known:
        connection.execute(insert(table).values(user_id=user_id, since=now))
    if known and not trusted:
        connection.execute(delete(table).where(table.c.user_id == user_id))


def is_trusted_account(connection: Connection, user_id: int) -> bool:
    """Say whether a user's hosts are the operator's own."""
    table = schema.trusted_users
    query = select(table.c.user_id).where(table.c.user_id == user_id)
    return connection.scalar(query) is not None


def trusted_accounts(connection: Connection) -> list[str]:
    """Return the addresses of the accounts whose hosts check others again."""
    users, table = schema.users, schema.trusted_users
    query = select(users.c.email).join(table, table.c.user_id == users.c.id)
    return list(connection.scalars(query.order_by(users.c.email)))


def ban_host(connection: Connection, result: str, now: int) -> None:
    """Ban the host that had `result`, whose result was wrong."""
    table = schema.results
    row = connection.execute(select(table).where(table.c.name == result)).one()
    ban(connection, row.host_id, row.host_key, now, workunit_id=row.workunit_id)


def ban(
    connection: Connection,
    host_id: int,  # row of the host
    host_key: str,  # its CPID
    now: int,  # s
    *,
    workunit_id: int = BY_OPERATOR,  # where it was caught
) -> None:
    """Ban a host: no record, no work, and nothing of it counts."""
    # A ban is one of this account's host. Its CPID would not do: every project that it helps
    # knows that, and could have it banned here by cheating under it.
    known = select(schema.bans.c.host_id).where(schema.bans.c.host_id == host_id)
    if connection.scalar(known) is None:
        values = {"host_id": host_id, "host_key": host_key, "since": now}
        connection.execute(
            insert(schema.bans).values(workunit_id=workunit_id, **values)
        )
    past = schema.histories
    connection.execute(
        update(past).where(past.c.host_id == host_id).values(consecutive_valid=0)
    )
    void_results(connection, host_id, now)


def lift_ban(connection: Connection, host_id: int) -> bool:
    """Let a host have work again, without a record; False when it was not banned."""
    table = schema.bans
    gone = connection.execute(delete(table).where(table.c.host_id == host_id))
    return bool(gone.rowcount)


def void_results(connection: Connection, host_id: int, now: int) -> None:
    """Let nothing that the host has or has brought decide anything any more.

    What is compared after a workunit's end counts for nobody either: no credit, no
    record. What was found valid or invalid before stays as it is.
    """
    table, of, kept = schema.results, schema.workunits, schema.lingering
    alive = select(of.c.id).where(
        of.c.outcome.is_(None) | of.c.id.in_(select(kept.c.workunit_id))
    )
    counted = (ResultOutcome.SUCCESS, ResultOutcome.NO_REPLY, ResultOutcome.NONE)
    mine = (
        table.c.host_id == host_id,
        table.c.workunit_id.in_(alive),
        table.c.outcome.in_([outcome.value for outcome in counted]),
        table.c.validity.in_([validity.value for validity in UNDECIDED]),
    )
    touched = list(connection.scalars(select(table.c.workunit_id).where(*mine)))
    connection.execute(
        update(table)
        .where(*mine)
        .values(
            state=ResultProgress.OVER.value,
            outcome=ResultOutcome.INVALID.value,
            validity=Validity.INVALID.value,
            code=BANNED,
        )
    )
    connection.execute(update(of).where(of.c.id.in_(touched)).values(transition_at=now))
