"""What a task's owner says of results that were believed: they cannot be used.

The validator sees one value; the owner sees what it was asked for. A trainer, for example,
finds answers that name another version, or whose numbers are far from all others'. His
word ends the record of the hosts that gave the value, and many such words of several
owners on a host's latest results let it pause, as after as many bad results in a row. It
takes nothing back: outcome and credit stay, and nobody is banned for it, because the owner
may be wrong, or wish the host ill: of what has long been used nothing is counted, no pause
grows while it runs, and one owner's word alone lets no host pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import select, update

from stoilo.server.engines.embedded.accounts.host_trust import end_record
from stoilo.server.engines.embedded.accounts.quotas import (
    DAY_S,
    RULES,
    Quota,
    after_rejection,
    load_quotas,
    store_quota,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import Validity

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow

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
