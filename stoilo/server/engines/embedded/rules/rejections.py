"""What a task's owner says of results that were believed: they cannot be used.

The validator sees one value; the owner sees what it was asked for. A trainer, for example,
finds answers that name another version, or whose numbers are far from all others'. His
word ends the record of the hosts that gave the value, and many such words in a short time
let a host pause, as after as many bad results in a row. It takes nothing back: outcome and
credit stay, and nobody is banned for it, because the owner may be wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import select, update

from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.hosttrust import note_failed
from stoilo.server.engines.embedded.rules.quotas import (
    RULES,
    Quota,
    after_error,
    load_quotas,
    store_quota,
)
from stoilo.server.engines.embedded.rules.records import Validity

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["REJECTED", "reject_copies"]

REJECTED: Final = "STO-T026"
LOOKED_AT: Final = 2 * RULES.patience
"""Results of a host that are looked back over."""


def reject_copies(connection: Connection, workunit: str, now: int) -> int:
    """Mark the hosts of the copies that a workunit's outcome came from, each copy once.

    Args:
        connection: inside a write transaction.
        workunit: name of one that may have ended.
        now: s.

    Returns:
        How many copies were marked; 0 for unknown names and those without an outcome.
    """
    table, of = schema.copies, schema.workunits
    rows = connection.execute(
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
    names = [row.name for row in rows]
    note_failed(connection, names)
    mine = table.c.name.in_(names)
    connection.execute(update(table).where(mine).values(code=REJECTED))
    for row in rows:
        _note_bad(connection, row.host_id, row.app, now)
    return len(rows)


def _note_bad(connection: Connection, host_id: int, app: str, now: int) -> None:
    """Count as many bad results in a row as the owner has rejected lately."""
    known = load_quotas(connection, host_id)
    quota = known.get(app, Quota(RULES.per_cpu))
    before = max(quota.errors_in_row, _rejected_lately(connection, host_id, app) - 1)
    quota = after_error(replace(quota, errors_in_row=before), now)
    store_quota(connection, host_id, app, quota, known=app in known)


def _rejected_lately(connection: Connection, host_id: int, app: str) -> int:
    """Return how many of a host's latest valid results the owner has rejected."""
    table, of = schema.copies, schema.workunits
    codes = connection.scalars(
        select(table.c.code)
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.host_id == host_id,
            table.c.validity == Validity.VALID.value,
            of.c.app == app,
        )
        .order_by(table.c.id.desc())
        .limit(LOOKED_AT)
    ).all()
    return codes.count(REJECTED)
