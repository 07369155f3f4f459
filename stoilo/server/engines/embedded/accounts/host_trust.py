"""Which hosts are alike, which have a record, which are ours, and which may not help.

A host's class follows BOINC's homogeneous redundancy: coarse is the family of operating
system and processor, fine tells families of processors apart. What a host says of itself
is not proven; a lie gets it results whose results it will not match.

A record is BOINC's ``consecutive_valid`` of a host and an app: valid results since the
last that was invalid, failed or never came. Only results that agreed with another host's
count, so nobody earns trust by being believed.

A ban follows a spot check that failed (`spot_checks`). It holds for the host and for
whoever calls with its identity; a cheat can come back as another host, without a record.

A record also ends when a task's owner says that results which were believed cannot be used
(`reject_results`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import select, update

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.accounts.quotas import (
    DAY_S,
    RULES,
    Quota,
    after_rejection,
    hosts_of,
    load_quotas,
    store_quota,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    UNDECIDED,
    Validity,
    WorkunitState,
)
from stoilo.server.engines.interface import ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import HostInfo
    from stoilo.server.engines.embedded.db.schema import AnyRow

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
# Words of the model that all must be there, the special ones first
_FAMILIES: Final = {
    "intel": "xeon,celeron,atom,core,pentium iii,pentium ii,pentium 4,pentium d,pentium m,"
    "pentium",
    "amd": "epyc,threadripper,ryzen,opteron,phenom,sempron,turion,duron,athlon 64,"
    "athlon xp,athlon mp,athlon",
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
    words = set(re.findall(r"[a-z0-9]+", model.partition("[")[0]))
    for word, coarse, fine in _PROCESSORS:
        if word in vendor:
            known = _FAMILIES.get(fine, "").split(",")
            family = next((one for one in known if words.issuperset(one.split())), "")
            return coarse, f"{fine} {family}".strip()
    return "", ""


def is_trusted(
    valid: int,  # its valid results in a row
    # uniform in [0, 1), unknown to the host: one in `valid` is checked anyway
    draw: float,
) -> bool:
    """Say whether a host may work alone this time."""
    return valid >= TRUSTED_AFTER and draw >= 1 / valid


def note_valid(connection: Connection, results: Iterable[str]) -> None:
    """Count results that agreed with another host's."""
    table = schema.host_apps
    for row in hosts_of(connection, results):
        connection.execute(
            update(table)
            .where(table.c.host_id == row.host_id, table.c.app == row.app)
            .values(consecutive_valid=table.c.consecutive_valid + 1)
        )


def end_record(connection: Connection, host_id: int, *apps: str) -> None:
    """Let a host begin without a record, with some apps or with all."""
    table = schema.host_apps
    which = (table.c.app.in_(apps),) if apps else ()
    connection.execute(
        update(table)
        .where(table.c.host_id == host_id, *which)
        .values(consecutive_valid=0)
    )


def trust_account(connection: Connection, email: str, *, trusted: bool = True) -> None:
    """Let an account's hosts check others again (the operator's own), or no longer.

    Raises:
        UsageError: ``STO-R029`` when there is no such account, or one made over the web:
            anybody may have taken that address.
    """
    users = schema.users
    mine = users.c.email == email
    row = connection.execute(select(users).where(mine)).first()
    if trusted and row is not None and row.password_hash:
        raise UsageError(
            "STO-R029",
            f"the account of {email[:100]!r} was made over the web: nobody knows by whom",
            hint="trust one that you made, or gave new keys, with `stoilo boinc account`",
        )
    find_user(connection, email)
    connection.execute(update(users).where(mine).values(trusted=int(trusted)))


def find_user(connection: Connection, email: str) -> int:
    """Return an account's number; raises ``STO-R029``."""
    users = schema.users
    address = email.strip().lower()
    found = connection.scalar(select(users.c.id).where(users.c.email == address))
    if found is None:
        raise UsageError(
            "STO-R029",
            f"there is no account of {email[:100]!r}",
            hint="make it with `stoilo boinc account`",
        )
    return int(found)


def ban(
    connection: Connection,
    host_id: int,  # row of the host
    now: int,  # s
    *,
    workunit_id: int = BY_OPERATOR,  # where it was caught
) -> None:
    """Ban a host: no record, no work, and nothing of it counts."""
    # A ban is one of this account's host. Its CPID would not do: every project that it helps
    # knows that, and could have it banned here by cheating under it.
    table = schema.hosts
    connection.execute(
        update(table)
        .where(table.c.id == host_id, table.c.ban.is_(None))
        .values(ban=workunit_id)
    )
    end_record(connection, host_id)
    void_results(connection, host_id, now)


def lift_ban(connection: Connection, host_id: int) -> None:
    """Let a host have work again, without a record."""
    table = schema.hosts
    connection.execute(update(table).where(table.c.id == host_id).values(ban=None))


def void_results(connection: Connection, host_id: int, now: int) -> None:
    """Let nothing that the host has or has brought decide anything any more.

    What is compared after a workunit's end counts for nobody either: no credit, no
    record. What was found valid or invalid before stays as it is.
    """
    table, of = schema.results, schema.workunits
    alive = select(of.c.id).where(of.c.state != WorkunitState.OVER.value)
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


# The validator sees one value; the owner sees what it was asked for. A trainer, for example,
# finds answers that name another version, or whose numbers are far from all others'. His
# word ends the record of the hosts that gave the value, and many such words of several owners
# on a host's latest results let it pause, as after as many bad results in a row. It takes
# nothing back: outcome and credit stay, and nobody is banned for it, because the owner may be
# wrong, or wish the host ill: of what has long been used nothing is counted, no pause grows
# while it runs, and one owner's word alone lets no host pause.
# From names of workunits to the accounts that own them; unknown ones may be missing
Owners: TypeAlias = Callable[[Sequence[str]], Mapping[str, int]]
REJECTED: Final = "STO-T026"
# Latest results of a host that an owner's word may be about, and that are looked over
LOOKED_AT: Final = 2 * RULES.patience
# Rejections by one account that count against a host
MOST_OF_ONE: Final = RULES.patience // 2


def of_one_owner(workunits: Sequence[str]) -> Mapping[str, int]:
    """Say that nobody knows whose workunits are: they count as one account's."""
    del workunits
    return {}


def reject_results(
    connection: Connection,  # inside a write transaction
    workunit: str,  # name of one that may have ended
    now: int,  # s
    # says whose workunits are; the word of one counts so often on a host
    owners: Owners = of_one_owner,
) -> int:
    """Mark the hosts of the results that a workunit's outcome came from, each result once.

    Returns:
        How many results were marked; 0 for unknown names and those without an outcome.
        Results older than a day, or followed by `LOOKED_AT` others, are left alone.
    """
    count = 0
    for row in _believed(connection, workunit):
        latest = _latest(connection, row.host_id, row.app, now)
        if row.name in {one.name for one in latest}:
            end_record(connection, row.host_id, row.app)
            mine = schema.results.c.name == row.name
            connection.execute(update(schema.results).where(mine).values(code=REJECTED))
            _note_bad(connection, row, latest, now, owners)
            count += 1
    return count


def _believed(connection: Connection, workunit: str) -> Sequence[AnyRow]:
    table, of = schema.results, schema.workunits
    return connection.execute(
        select(table.c.name, table.c.host_id, of.c.app)
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            of.c.name == workunit,
            of.c.canonical.is_not(None),
            table.c.validity == Validity.VALID.value,
            table.c.code != REJECTED,
            table.c.host_id != 0,
        )
    ).all()


def _latest(
    connection: Connection, host_id: int, app: str, now: int
) -> Sequence[AnyRow]:
    table, of = schema.results, schema.workunits
    return connection.execute(
        select(table.c.name, table.c.code, of.c.name.label("workunit"))
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.host_id == host_id,
            table.c.validity == Validity.VALID.value,
            table.c.received_at > now - DAY_S,
            of.c.app == app,
        )
        .order_by(table.c.id.desc())
        .limit(LOOKED_AT)
    ).all()


def _note_bad(
    connection: Connection,
    result: AnyRow,
    latest: Sequence[AnyRow],
    now: int,
    owners: Owners,
) -> None:
    """Let the result's host pause when it is one rejection of many; `latest` is from before."""
    rejected = [one.workunit for one in latest if one.code == REJECTED]
    mine = [one.workunit for one in latest if one.name == result.name]
    owner_of = owners(rejected + mine)
    before = _weigh(rejected, owner_of)
    after = _weigh(rejected + mine, owner_of)
    if after == before:
        return
    known = load_quotas(connection, result.host_id)
    quota = known.get(result.app, Quota(RULES.per_cpu))
    worse = after_rejection(quota, after, now, RULES)
    if worse != quota:
        store_quota(
            connection, result.host_id, result.app, worse, known=result.app in known
        )


def _weigh(workunits: Sequence[str], owner_of: Mapping[str, int]) -> int:
    """Return how many rejections count, of each owner so many."""
    counts = Counter(owner_of.get(name) for name in workunits)
    return sum(min(count, MOST_OF_ONE) for count in counts.values())
