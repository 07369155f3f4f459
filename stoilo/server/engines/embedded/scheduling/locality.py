"""Which of the results that may go to a host go first: those whose files it has (S0-18).

BOINC calls it locality scheduling. It changes the order among equals only: a higher
priority goes first whatever a host holds, and so does what has waited long, so that no
workunit starves because others' files are better spread.

Among those that are equal then the lot decides, of those that have waited longest: were
they handed out in order, two accounts of one person that call one right after the other
would get both results of a workunit, and could agree on a lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import exists, func, select

from stoilo.executor.verifier.workunit import FLAVOR
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.scheduling.sticky_files import held_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from stoilo.core.boinc.messages import SchedulerRequest


__all__ = ["Candidate", "in_order", "local_first"]

PATIENCE_S: Final = 600
"""Older results wait no longer for a host that has their files, s."""

LARGE_BYTES: Final = 1024 * 1024
"""Smaller files are sent as quickly as they are looked for."""

MOST_HELD: Final = 256


@dataclass(frozen=True, slots=True)
class Candidate:
    """An unsent result that may go to the host."""

    id: int  # row of the result; grows with its age
    workunit_id: int  # row of its workunit
    priority: int  # larger goes out first
    created_at: int  # of the workunit, s
    held_bytes: int = 0  # of its large files, what the host has
    lot: float = 0.0  # of its workunit, uniform in [0, 1): the smallest goes first


def in_order(candidates: Iterable[Candidate], now: int) -> list[Candidate]:
    """Return candidates, the best first. Pure; their order does not matter."""
    every = list(candidates)
    somewhere = any(one.held_bytes for one in every)

    def rank(one: Candidate) -> tuple[int, bool, int, float, int]:
        waited = somewhere and now - one.created_at >= PATIENCE_S
        local = 0 if waited else one.held_bytes
        return (-one.priority, not waited, -local, one.lot, one.id)

    return sorted(every, key=rank)


def local_first(
    connection: Connection,
    request: SchedulerRequest,  # says what the host keeps
    # query for ``copy_id``, ``workunit_id``, ``priority`` and ``created_at`` of
    # `results` and `workunits`, at most :most rows; they are looked for among all and
    # among those whose files the host has
    candidates: Select[Any],
    values: Mapping[str, object],  # of its parameters
    now: int,  # s since 1970
    # uniform in [0, 1); whoever foresees them can choose what he gets
    lots: Callable[[], float],
) -> list[Row]:  # type: ignore[type-arg]  # of `candidates`
    """Return candidates in the order in which they shall go, the best first."""
    held = _large_held(connection, request)
    found = connection.execute(candidates, values).all()
    if not held:
        return _by_lot(found, lots)
    near = connection.execute(candidates.where(_needs_any(held)), values).all()
    rows = {row.copy_id: row for row in (*found, *near)}
    drawn = {row.workunit_id: lots() for row in rows.values()}
    sizes = _held_bytes(connection, set(drawn), held)
    scored = [
        Candidate(
            row.copy_id,
            row.workunit_id,
            row.priority,
            row.created_at,
            sizes.get(row.workunit_id, 0),
            drawn[row.workunit_id],
        )
        for row in rows.values()
    ]
    return [rows[one.id] for one in in_order(scored, now)]


def _by_lot(found: Sequence[Row], lots: Callable[[], float]) -> list[Row]:  # type: ignore[type-arg]  # of `candidates`
    """Return rows in the order of `in_order` where their host has no files."""
    drawn: dict[int, float] = {}
    keys = []
    for place, row in enumerate(found):
        lot = drawn.get(row.workunit_id)
        if lot is None:
            lot = drawn[row.workunit_id] = lots()
        keys.append((-row.priority, lot, place))
    return [found[place] for *_, place in sorted(keys)]


def _large_held(connection: Connection, request: SchedulerRequest) -> tuple[str, ...]:
    """Return digests of the large files that the host says it has, and that we have."""
    said = held_files(request)
    if not said:
        return ()
    table = schema.files
    query = select(table.c.digest).where(
        table.c.digest.in_(said), table.c.size >= LARGE_BYTES
    )
    return tuple(connection.scalars(query.limit(MOST_HELD)))


def _needs_any(held: tuple[str, ...]) -> ColumnElement[bool]:
    """Return the condition for workunits that need one of these files.

    Archives of flavors do not count: every task of a level needs the same.
    """
    needs = schema.workunit_files
    return exists().where(
        needs.c.workunit_id == schema.workunits.c.id,
        needs.c.digest.in_(held),
        needs.c.open_name != FLAVOR,
    )


def _held_bytes(
    connection: Connection, workunits: set[int], held: tuple[str, ...]
) -> dict[int, int]:
    """Return how many bytes of each workunit's files the host has."""
    needs, files = schema.workunit_files, schema.files
    query = (
        select(needs.c.workunit_id, func.sum(files.c.size))
        .join(files, files.c.digest == needs.c.digest)
        .where(needs.c.workunit_id.in_(workunits), needs.c.digest.in_(held))
        .group_by(needs.c.workunit_id)
    )
    return {row: int(size) for row, size in connection.execute(query)}
