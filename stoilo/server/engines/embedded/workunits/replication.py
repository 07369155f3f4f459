"""How a workunit's results are spread: rows of the homogeneous and the adaptive ones.

An adaptive workunit starts *alone*: one result, and a quorum of one. It stays so while its
results go to trusted hosts only; the first that goes to another host raises it to the
quorum and target of its redundancy, for good (BOINC's unreplicated jobs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, or_, update

from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.db.records import Caller
    from stoilo.server.engines.workunits import WorkunitSpec

__all__ = [
    "commit_class",
    "first_results",
    "fits_class",
    "raise_quorum",
    "release_class",
    "replication_rows",
]


def starts_alone(spec: WorkunitSpec) -> bool:
    """Say whether one result is enough at first."""
    return spec.replication.adaptive and spec.redundancy.min_quorum > 1


def first_results(spec: WorkunitSpec) -> int:
    """Return how many results a new workunit gets."""
    return 1 if starts_alone(spec) else spec.redundancy.target_results


def replication_rows(
    specs: Sequence[WorkunitSpec], row_of: dict[str, int]
) -> list[dict[str, object]]:
    """Return the rows of workunits that are homogeneous or adaptive."""
    return [
        {
            "workunit_id": row_of[spec.name],
            "homogeneous": spec.replication.homogeneous.value,
            "host_class": "",
            "alone": int(starts_alone(spec)),
        }
        for spec in specs
        if spec.replication.homogeneous or starts_alone(spec)
    ]


def fits_class(caller: Caller) -> ColumnElement[bool]:
    """Return the condition that a workunit, outer joined, allows the caller's class."""
    table = schema.replications
    allowed: list[ColumnElement[bool]] = [
        table.c.workunit_id.is_(None),
        table.c.homogeneous == Homogeneity.NONE.value,
    ]
    for kind in (Homogeneity.COARSE, Homogeneity.FINE):
        own = caller.class_for(kind)
        if own:
            same = table.c.host_class.in_(["", own])
            allowed.append(and_(table.c.homogeneous == kind.value, same))
    return or_(*allowed)


def commit_class(connection: Connection, workunit_id: int, host_class: str) -> None:
    """Let further results go to hosts of this class only."""
    table = schema.replications
    connection.execute(
        update(table)
        .where(table.c.workunit_id == workunit_id)
        .values(host_class=host_class)
    )


def release_class(connection: Connection, workunit_id: int) -> None:
    """Let further results go to hosts of any class."""
    commit_class(connection, workunit_id, "")


def raise_quorum(connection: Connection, workunit_id: int, now: int) -> None:
    """Let the workunit's own redundancy hold; the missing results are made at once."""
    table, of = schema.replications, schema.workunits
    connection.execute(
        update(table).where(table.c.workunit_id == workunit_id).values(alone=0)
    )
    connection.execute(
        update(of).where(of.c.id == workunit_id).values(transition_at=now)
    )
